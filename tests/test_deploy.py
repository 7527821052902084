"""What is in deploy/ and docs/deploy.md is true: its commands exist, and its roles suffice for what they are for."""

from __future__ import annotations

import configparser
import inspect
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from surefoot import Surefoot, step, workflow
from surefoot.cli import main
from surefoot.cli.desk import VARIABLE
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


def test_every_variable_that_the_compose_file_sets_is_read_by_somebody() -> None:
    """Ours by our code, those of the roles by their script; what is left is the images' own."""
    compose = (ROOT / "deploy" / "compose.yaml").read_text("utf-8")
    given = set(re.findall(r"^ +([A-Z][A-Z_]+): ", compose, re.MULTILINE))
    script = (ROOT / "deploy" / "make-roles.sh").read_text("utf-8")
    roles = {name for name in given if f"${name}" in script or f"${{{name}" in script}
    assert roles == {"OWNER_PASSWORD", "WORKER_PASSWORD"}
    theirs = {"POSTGRES_PASSWORD", "POSTGRES_INITDB_ARGS", "DATABASE_URL", "AUTH_TYPE"}
    assert given - roles - theirs == {VARIABLE}
    unit = (ROOT / "deploy" / "surefoot-worker@.service").read_text("utf-8")
    assert f"# {VARIABLE}=postgresql://" in unit and "EnvironmentFile=" in unit


def test_a_supervisor_waits_longer_than_the_grace_time() -> None:
    grace = inspect.signature(Surefoot).parameters["grace"].default
    unit = (ROOT / "deploy" / "surefoot-worker@.service").read_text("utf-8")
    compose = (ROOT / "deploy" / "compose.yaml").read_text("utf-8")
    waits = [*re.findall(r"TimeoutStopSec=(\d+)", unit), *re.findall(r"stop_grace_period: (\d+)s", compose)]
    assert len(waits) == 2 and all(float(seconds) >= 2 * grace for seconds in waits)
    assert "KillSignal=SIGTERM" in unit, "what a worker drains on"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """With a program, a folder and a user that this machine has."""
    text = (ROOT / "deploy" / "surefoot-worker@.service").read_text("utf-8")
    for ours, here in (
        ("/opt/agents/.venv/bin/surefoot", "/bin/true"),
        ("/opt/agents", "/tmp"),
        ("=surefoot", "=root"),
    ):
        assert ours in text
        text = text.replace(ours, here)
    (tmp_path / "surefoot-worker@.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "surefoot-worker@1.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "surefoot-worker" not in done.stderr, done.stderr


def test_pgbouncers_settings_are_those_that_the_guide_says() -> None:
    settings = configparser.ConfigParser(inline_comment_prefixes=(";",))
    settings.read(ROOT / "deploy" / "pgbouncer.ini")
    assert settings["pgbouncer"]["pool_mode"] == "transaction" and settings["databases"]["agents"]
    assert int(settings["pgbouncer"]["max_client_conn"]) > int(settings["pgbouncer"]["default_pool_size"])


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
