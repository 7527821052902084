"""Runs what the rows do not show: a program per engine, in its environment, that asserts and ends with ALL RIGHT."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from engines import servers
from engines.envs import ENVIRONMENTS, ENVS
from engines.servers import Place
from surefoot.testing.postgres import PrivatePostgres

HERE = Path(__file__).resolve().parent
SECONDS = 300


@contextmanager
def _postgres(folder: Path) -> Iterator[Place]:
    with PrivatePostgres() as server:
        yield {"ENGINE": server.create_database()}


@contextmanager
def _nothing(folder: Path) -> Iterator[Place]:
    yield {}


PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "temporal": servers.temporal,
    "dbos": _postgres,
    "langgraph": _nothing,
}


def check(env: str) -> bool:
    """True if the engine's program says so; what it says is printed."""
    with tempfile.TemporaryDirectory(prefix=f"engines-check-{env}-") as folder, PLACES[env](Path(folder)) as place:
        done = subprocess.run(
            [str(ENVIRONMENTS[env].python), str(HERE / "checks" / f"check_{env}.py")],
            env={
                **os.environ,
                **place,
                "WORLD": folder,
                "PYTHONPATH": str(HERE.parent / "src"),
                "PYTHONPYCACHEPREFIX": str(ENVS / "bytecode"),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    right = done.returncode == 0 and done.stdout.rstrip().endswith("ALL RIGHT")
    print(done.stdout if right else done.stdout + done.stderr[-3000:], flush=True)
    return right
