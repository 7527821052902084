"""The engines measured beside Surefoot, each in a virtual environment of its own.

One environment per peer, because their dependencies disagree and because an import is part of what is measured.
`python -m bench.peers install [NAME ...]` makes them under bench/.envs; `python -m bench.peers` lists them.
"""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVS = HERE / ".envs"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One engine: what to install, and the worker that drives it."""

    name: str
    requirements: tuple[str, ...]
    worker: str
    module: str
    python_min: tuple[int, int] = (3, 11)

    @property
    def python(self) -> Path:
        return ENVS / self.name / "bin" / "python"

    @property
    def installed(self) -> bool:
        return (ENVS / self.name / "complete").exists()


PEERS = (
    Peer(name="dura", requirements=("dura==1.3.0",), worker="peer_dura.py", module="dura", python_min=(3, 13)),
    Peer(
        name="langgraph",
        requirements=("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
        worker="peer_langgraph.py",
        module="langgraph.graph",
    ),
    Peer(name="dbos", requirements=("dbos==3.4.0",), worker="peer_dbos.py", module="dbos"),
)


def installed() -> tuple[Peer, ...]:
    return tuple(peer for peer in PEERS if peer.installed)


def interpreters() -> list[str]:
    """Every Python found, this one first."""
    on_path = [path for minor in range(11, 16) if (path := shutil.which(f"python3.{minor}"))]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [sys.executable, *on_path, *(str(path) for path in sorted(pyenv.glob("3.*/bin/python")))]


def version_of(python: str) -> tuple[int, int] | None:
    """None when it cannot run: a pyenv shim may exist and still refuse."""
    code = "import sys; print(*sys.version_info[:2])"
    answer = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if answer.returncode:
        return None
    major, minor = answer.stdout.split()
    return int(major), int(minor)


def interpreter_for(peer: Peer) -> str | None:
    for python in interpreters():
        version = version_of(python)
        if version is not None and version >= peer.python_min:
            return python
    return None


def install(peer: Peer) -> bool:
    """Makes the environment; the file `complete` is written last, so a broken install is never used."""
    if peer.installed:
        print(f"{peer.name}: already there")
        return True
    python = interpreter_for(peer)
    if python is None:
        wanted = ".".join(map(str, peer.python_min))
        print(f"{peer.name}: skipped, needs Python {wanted} or newer and none was found")
        return False
    home = ENVS / peer.name
    shutil.rmtree(home, ignore_errors=True)
    print(f"{peer.name}: {', '.join(peer.requirements)} on {python}", flush=True)
    # Our own pip fills it: not every system's Python can put a pip into a new environment.
    pip = [sys.executable, "-m", "pip", "--python", str(peer.python), "--disable-pip-version-check", "install", "-q"]
    made = subprocess.run([python, "-m", "venv", "--without-pip", str(home)], check=False)
    if made.returncode or subprocess.run([*pip, *peer.requirements], check=False).returncode:
        print(f"{peer.name}: skipped, it could not be installed")
        return False
    (home / "complete").write_text("")
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("list", "install"), default="list")
    parser.add_argument("names", nargs="*", help="only these")
    args = parser.parse_args()
    for peer in PEERS:
        if args.names and peer.name not in args.names:
            continue
        if args.command == "install":
            install(peer)
        else:
            print(f"{peer.name:12} {'installed' if peer.installed else 'absent':10} {', '.join(peer.requirements)}")


if __name__ == "__main__":
    main()
