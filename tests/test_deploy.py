"""What is in deploy/ and docs/deploy.md is true: its commands exist, and its roles suffice for what they are for."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psycopg
import pytest

from surefoot import Surefoot, step, workflow
from surefoot.cli import main
from surefoot.testing.postgres import PrivatePostgres

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*sorted((ROOT / "deploy").iterdir()), ROOT / "docs" / "deploy.md", ROOT / "docs" / "scale.md"]
COMMAND = re.compile(r"(?<![\w/.-])(?:/opt/agents/\.venv/bin/)?surefoot,? ([a-z][^`#\n)\]]*)")
WORDS = re.compile("[a-z]+")
ROLES = ("surefoot_owner", "surefoot_worker")


@step
def weigh(parcel: str) -> int:
    return len(parcel)


@workflow
def deployed(parcel: str) -> int:
    return weigh(parcel)


def commands() -> set[tuple[str, tuple[str, ...]]]:
    """Every `surefoot NAME --option …` that the documents hold, without its values."""
    found: set[tuple[str, tuple[str, ...]]] = set()
    for document in DOCUMENTS:
        for line in COMMAND.findall(document.read_text("utf-8")):
            name, *words = shlex.split(line.replace(",", " "), posix=False)
            options = tuple(word for word in words if word.startswith("--"))
            if WORDS.fullmatch(name):
                found.add((name, options))
    return found


def test_every_command_in_the_deploy_guide_exists(capsys: pytest.CaptureFixture[str]) -> None:
    asked = commands()
    assert {"worker", "migrate", "doctor"} <= {name for name, _ in asked}
    for name, options in asked:
        capsys.readouterr()
        assert main([name, "--help"]) == 0, f"surefoot {name}"
        shown = capsys.readouterr().out
        assert all(option in shown for option in options), f"surefoot {name} {options}"


def test_the_owner_migrates_and_the_worker_works(postgres: PrivatePostgres, capsys: pytest.CaptureFixture[str]) -> None:
    script = (ROOT / "deploy" / "make-roles.sh").read_text("utf-8")
    sql = (
        script.partition("<<'SQL'\n")[2]
        .partition("SQL\n")[0]
        .replace(":'owner'", "'own'")
        .replace(":'worker'", "'work'")
    )
    with psycopg.connect(postgres.url, autocommit=True) as db:
        for statement in sql.split(";\n"):
            if statement.strip():
                db.execute(statement.encode())
        owner, worker = (
            postgres.url_of("agents").replace(f"surefoot:{postgres.password}", f"{role}:{password}")
            for role, password in zip(ROLES, ("own", "work"), strict=True)
        )
        try:
            assert main(["migrate", "--db", worker]) == 5
            assert main(["migrate", "--db", owner, "--check"]) == 1
            assert main(["migrate", "--db", owner, "--grant", "surefoot_worker"]) == 0
            assert main(["migrate", "--db", worker, "--check"]) == 0
            with Surefoot(worker) as sf:
                sf.start(deployed, "box", id="r", queue="default")
                with sf.worker([deployed]):
                    assert sf.run(deployed, "box", id="r") == 3
            assert main(["doctor", "--db", worker]) == 0
        finally:
            db.execute(b"DROP DATABASE agents WITH (FORCE)")
            for role in ROLES:
                db.execute(f"DROP ROLE {role}".encode())
