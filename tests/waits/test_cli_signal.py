"""`surefoot signal`: what it sends, what it refuses, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Surefoot, workflow
from surefoot.cli.app import run as run_cli


@workflow
def listener() -> Any:
    return [surefoot.wait_for("go"), surefoot.wait_for("go")]


@workflow
def nothing() -> None:
    return None


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_cli(arguments)
    output, errors = capsys.readouterr()
    return code, output, errors


def test_a_message_is_sent_with_its_sender_and_its_id_counts_once(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Surefoot(db) as sf:
        sf.start(listener, id="r", queue="default")
        code, output, _ = told(capsys, "signal", "r", "go", '{"ok": true}', "--id", "m", "--who", "ann", "--db", db)
        assert code == 0 and output == "run r has the message go; it is pending\n"
        assert told(capsys, "signal", "r", "go", '{"ok": true}', "--id", "m", "--db", db)[0] == 0
        code, output, _ = told(capsys, "signal", "r", "go", "--db", db, "--json")
        assert code == 0 and json.loads(output)["name"] == "go" and json.loads(output)["value"] is None
        mail = sf.store.board.read_mail("r")
        assert [(m.id == "m", m.value) for m in mail] == [(True, b'{"ok":true}'), (False, b"null")]
        assert mail[0].who == "ann" and mail[1].who
        assert sf.run(listener, id="r") == [{"ok": True}, None]
        assert sf.store.board.find_owners()[1:] == []


def test_what_cannot_be_sent_is_told_with_an_exit_code(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Surefoot(db) as sf:
        sf.start(listener, id="r", queue="default")
        sf.run(nothing, id="over")
        for arguments, code, said in (
            (("r", "go", "{bad"), 2, "must be JSON"),
            (("r", "a/b", "1"), 2, "choose another name"),
            (("r", "approval:x", "1"), 2, "choose another name"),
            (("nobody", "go", "1"), 4, "no run 'nobody'"),
            (("over", "go", "1"), 6, "has succeeded; it reads no message any more"),
        ):
            found, output, errors = told(capsys, "signal", *arguments, "--db", db)
            assert (found, output) == (code, "") and said in errors, (arguments, errors)
        assert told(capsys, "signal", "r", "go", "1", "--first", "--db", db)[0] == 0
        code, _, errors = told(capsys, "signal", "r", "go", "2", "--first", "--db", db)
        assert code == 6 and "another message 'go' was first" in errors
        assert [m.value for m in sf.store.board.read_mail("r")] == [b"1"]


def test_it_is_a_command_of_the_program(db: str, tmp_path: Path) -> None:
    with Surefoot(db) as sf:
        sf.start(listener, id="r", queue="default")
        command = [str(Path(sys.executable).with_name("surefoot")), "signal", "r", "go", "7"]
        done = subprocess.run(command, env={**os.environ, "SUREFOOT_DB": db}, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert [m.value for m in sf.store.board.read_mail("r")] == [b"7"]
