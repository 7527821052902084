"""The program around the commands: exit codes, stores that cannot be opened, and terminals that must not be steered."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import RunWaiting, Surefoot
from surefoot.cli.text import moment, safe
from surefoot.stores.sqlite.store import SqliteStore
from tests.cli import agents
from tests.cli.conftest import PROGRAM, ROOT, Command

READING = (("runs",), ("show", "r"), ("doubts",), ("doctor",))
WRITING = (("cancel", "r"), ("resolve", "r", "page", "--abandon", "--why", "w"))
HOSTILE = "\x1b[31mred\x1b]0;title\x07 [red]markup[/red] \u202etxet \x9b2J \r\n\ttab :smile:"


@pytest.mark.parametrize("command", READING + WRITING, ids=lambda c: c[0])
def test_looking_never_creates_a_store(command: tuple[str, ...], db: str, cli: Command) -> None:
    ran = cli(*command, "--json")
    assert ran.code == 4 and "no store at" in ran.error and "SUREFOOT_DB" in ran.error
    assert os.listdir(Path(db).parent) == []
    Path(db).touch()
    ran = cli(*command, "--json")
    assert ran.code == 4 and "empty file" in ran.error and Path(db).stat().st_size == 0


def test_what_cannot_be_a_store_is_refused(tmp_path: Path, cli: Command) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, " * 100)
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as raw:
        raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    before = {path.name: path.read_bytes() for path in (text, foreign)}
    for path, told in (
        (text, "not a SQLite database"),
        (foreign, "another application's tables"),
        (tmp_path, "folder"),
    ):
        ran = cli("runs", "--db", str(path), "--json")
        assert ran.code == 5 and told in ran.error
    assert {path.name: path.read_bytes() for path in (text, foreign)} == before
    for url, told in (
        ("memory:", "memory:"),
        ("mysql://x", "cannot open"),
        ("postgres:/x", "expected a path, sqlite:///path or postgresql://"),
    ):
        ran = cli("runs", "--db", url, "--json")
        assert ran.code == 2 and told in ran.error


def test_a_schema_from_the_future_is_refused(db: str, parked: str, cli: Command) -> None:
    with sqlite3.connect(db) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    ran = cli("doctor", "--json")
    assert ran.code == 5 and "newer Surefoot" in ran.error


def test_reading_works_and_deciding_is_refused_while_a_stranger_holds_the_write_lock(
    db: str, parked: str, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SqliteStore.__init__.__kwdefaults__, "busy_seconds", 0.3)
    stranger = sqlite3.connect(db, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    try:
        assert cli("doubts").code == 0 and cli("doctor").code == 1 and cli("show", "onboard-acme").code == 0
        ran = cli("resolve", "onboard-acme", "page", "--abandon", "--why", "w", "--json")
        assert ran.code == 5 and "locked by another program" in ran.error
    finally:
        stranger.close()
    assert cli("doubts", "--json").json["doubts"][0]["effect"]["status"] == "parked"


def test_reading_registers_no_owner_and_writes_nothing(db: str, parked: str, program: Command) -> None:
    with sqlite3.connect(db) as raw:
        before = raw.execute("SELECT count(*), max(id) FROM owners").fetchall()
    for command in READING:
        program(*command)
    with sqlite3.connect(db) as raw:
        assert raw.execute("SELECT count(*), max(id) FROM owners").fetchall() == before
    raw.close()
    assert list(Path(f"{db}-owners").iterdir()) == []


def test_the_store_is_named_by_option_variable_or_default(tmp_path: Path, db: str, parked: str) -> None:
    plain = {k: v for k, v in os.environ.items() if k != "SUREFOOT_DB"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def listed(*arguments: str, cwd: Path, **variables: str) -> int:
        command = [PROGRAM, *arguments]
        ended = subprocess.run(command, cwd=cwd, env=plain | variables, capture_output=True, timeout=60)
        return ended.returncode

    assert listed("runs", cwd=tmp_path) == 0
    assert listed("runs", cwd=elsewhere) == 4
    assert listed("runs", cwd=elsewhere, SUREFOOT_DB=db) == 0
    assert listed("runs", "--db", f"sqlite:///{db}", cwd=elsewhere, SUREFOOT_DB="nowhere") == 0
    assert listed("--db", db, "runs", cwd=elsewhere, SUREFOOT_DB="nowhere") == 0
    assert listed("--db", "nowhere", "runs", "--db", db, cwd=elsewhere) == 0


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("runs", "--nonsense"), ("show",), ("resolve", "r"), ("runs", "extra"), ()],
)
def test_a_command_line_that_makes_no_sense_exits_2(arguments: tuple[str, ...], parked: str, cli: Command) -> None:
    ran = cli(*arguments, "--json")
    assert ran.code == 2 and ran.error
    ran = cli(*arguments)
    assert ran.code == 2 and "Traceback" not in ran.err


def test_version_and_help(program: Command) -> None:
    ran = program("--version")
    assert (ran.code, ran.out) == (0, f"surefoot {surefoot.__version__}\n")
    assert program("--json", "--version").json == {"version": surefoot.__version__}
    ran = program("--help")
    assert ran.code == 0 and re.search(r"6 +not possible as things stand", ran.out)
    for name in ("runs", "show", "doubts", "resolve", "doctor", "cancel"):
        ran = program(name, "--help")
        assert ran.code == 0 and "--json" in ran.out and "--db" in ran.out
        assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_install_it(missing: str) -> None:
    source = f"import sys; sys.modules[{missing!r}] = None; from surefoot.cli import main; sys.exit(main())"
    for options, told in (([], "surefoot: "), (["--json"], '{"error": ')):
        command = [sys.executable, "-c", source, "runs", *options]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert ended.returncode == 3 and ended.stdout == "" and ended.stderr.startswith(told)
        assert "pip install 'surefoot[cli]'" in ended.stderr


def test_importing_surefoot_or_its_cli_loads_neither_typer_nor_rich() -> None:
    source = "import sys, surefoot, surefoot.cli; print({'typer', 'rich'} & {n.split('.')[0] for n in sys.modules})"
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert ended.stdout == "set()\n"


def test_nothing_that_was_stored_steers_the_terminal(db: str, cli: Command, program: Command) -> None:
    with Surefoot(db) as sf:
        with pytest.raises(ValueError, match="markup"):
            sf.run(agents.hostile, HOSTILE, id="[red]hostile[/red]")
        with pytest.raises(RunWaiting):
            sf.run(agents.onboard, HOSTILE, id="hostile-2")
    why = ("--why", HOSTILE, "--who", HOSTILE)
    shown = [
        cli("runs"),
        cli("show", "[red]hostile[/red]"),
        cli("show", "hostile-2"),
        cli("doubts"),
        cli("doctor"),
        cli("resolve", "hostile-2", HOSTILE, "--abandon", *why),
        cli("resolve", "hostile-2", "page", "--happened", json.dumps(HOSTILE), *why),
        cli("resolve", "hostile-2", "page", "--abandon", *why),
        cli("show", "hostile-2"),
        cli("nonsense\x1b[31m"),
        cli("show", "x", "--db", HOSTILE),
        program("show", "hostile-2", FORCE_COLOR="1", COLUMNS="80"),
    ]
    colours = re.compile(r"\x1b\[[0-9;]*m")
    for ran in shown:
        for text in (ran.out, ran.err):
            if ran is shown[-1]:
                assert colours.search(text) or text is ran.err
                text = colours.sub("", text)
            assert {c for c in text if not c.isprintable()} <= {"\n"}, text
    everything = "".join(ran.out for ran in shown)
    assert "[red]hostile[/red]" in everything and "[red]markup[/red]" in everything and ":smile:" in everything
    assert "\\x1b[31mred" in everything and "\\u202etxet" in everything and "\\x9b2J" in everything


def test_text_is_escaped_but_not_changed() -> None:
    assert safe("plain, ünïcode, 漢字 ✓") == "plain, ünïcode, 漢字 ✓"
    assert safe("\x1b\n\x7f\x85\u2028\u2066\ud800\U000e0041") == "\\x1b\\n\\x7f\\x85\\u2028\\u2066\\ud800\\U000e0041"


def test_a_pipe_gets_whole_ids_and_no_colours(db: str, program: Command) -> None:
    long = "onboard-" + "x" * 180
    with Surefoot(db) as sf, pytest.raises(RunWaiting):
        sf.run(agents.onboard, "acme", id=long)
    for command in (("runs",), ("show", long), ("doubts",), ("doctor",)):
        ran = program(*command)
        assert long in ran.out and "\x1b" not in ran.out and "…" not in ran.out
        prose = [line for line in ran.out.splitlines() if long not in line]
        assert max(map(len, prose)) <= 80, ran.out
    assert f"surefoot resolve {long} " in program("doubts").out


def test_a_reader_that_goes_away_is_no_error(db: str, parked: str) -> None:
    command = f"{PROGRAM} show onboard-acme --db {db} | true"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_output_that_knows_only_ascii_is_no_error(db: str, program: Command) -> None:
    with Surefoot(db) as sf, pytest.raises(RunWaiting):
        sf.run(agents.onboard, "漢字", id="漢字")
    for command in (("runs",), ("show", "漢字"), ("doubts",), ("doctor",)):
        ran = program(*command, PYTHONIOENCODING="ascii", PYTHONUTF8="1")
        assert "Traceback" not in ran.err and "\\u6f22" in ran.out


def test_it_works_while_runs_are_made_on_the_same_store(db: str, program: Command) -> None:
    stop = threading.Event()
    with Surefoot(db) as sf:
        sf.run(agents.review, "p0", "body", id="run-0")

        def work() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                sf.run(agents.review, f"p{number}", "body", id=f"run-{number}")

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for command in (("runs",), ("doctor",), ("doubts",), ("show", "run-0")):
                assert program(*command, "--json").code == 0
        finally:
            stop.set()
            thread.join()
        assert all(run.status == "succeeded" for run in sf.list())


def test_demo_gets_its_options_as_they_were_written(cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = pytest.importorskip("surefoot.demo.main")
    given: list[Any] = []

    def forwarded(**options: Any) -> int:
        given.append(options["args"])
        return 1

    monkeypatch.setattr(demo, "app", forwarded)
    assert cli("demo", "--jobs", "2", "--json", "--out", "x.html").code == 1
    assert cli("demo", "--json", "rows.json", "--help").code == 1
    assert cli("--json", "demo").code == 1
    assert given == [
        ["--jobs", "2", "--json", "-", "--out", "x.html"],
        ["--json", "rows.json", "--help"],
        ["--json", "-"],
    ]


def test_the_demo_without_its_extra_says_how_to_install_it() -> None:
    source = "import sys; sys.modules['jinja2'] = sys.modules['surefoot.demo.main'] = None; "
    source += "from surefoot.cli import main; sys.exit(main())"
    ended = subprocess.run([sys.executable, "-c", source, "demo"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert ended.returncode == 3 and "pip install 'surefoot[demo]'" in ended.stderr


def test_an_instant_that_no_calendar_has_is_shown_as_the_last_that_it_has() -> None:
    """`sleep_until(datetime.max)`, once it has become a float, lies in the year 10000; it was told as due in 1970."""
    for far in (datetime.max.replace(tzinfo=UTC).timestamp(), 1e300):
        assert moment(far).startswith("9999-12-31 23:59:59")
    assert moment(-1e300).startswith("19")
