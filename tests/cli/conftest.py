"""The command in this process (`cli`) and as the installed program (`program`), on a store of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from surefoot import RunWaiting, Surefoot
from surefoot.cli import main
from tests.cli import agents

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.executable).with_name("surefoot")


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout, which must hold one document and nothing else."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The message of a JSON error, which must come alone and name the exit code."""
        assert self.out == ""
        document = json.loads(self.err)
        assert document.keys() == {"error", "code"} and document["code"] == self.code
        return document["error"]


Command = Callable[..., Ran]


@pytest.fixture(autouse=True)
def fresh() -> None:
    agents.sent.clear()
    agents.edited.clear()


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "agents.db")


@pytest.fixture
def cli(db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("SUREFOOT_DB", db)
    monkeypatch.setenv("COLUMNS", "80")

    def ask(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(arguments)
        return Ran(code, *capsys.readouterr())

    return ask


@pytest.fixture
def program(db: str) -> Command:
    def ask(*arguments: str, **variables: str) -> Ran:
        plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "COLUMNS", "SUREFOOT_DB")}
        ended = subprocess.run(
            [PROGRAM, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env=plain | {"SUREFOOT_DB": db} | variables,
            cwd=Path(db).parent,
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)

    return ask


@pytest.fixture
def child(db: str) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `agents.py` on the store, and returns once it is in the middle of its run."""
    started: list[subprocess.Popen[str]] = []

    def start(kind: str, how: str, run_id: str, *, lease: float = 15.0) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.cli.agents", db, kind, how, run_id, str(lease)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() in ("hanging\n", "sending\n")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def parked(db: str) -> str:
    """The key of a parked effect `page` of the run `onboard-acme`."""
    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(agents.onboard, "acme", id="onboard-acme")
        (effect,) = sf.store.find_effects(run_id="onboard-acme")
    assert effect.status == "parked"
    return effect.key
