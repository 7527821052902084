"""The command line and what it leaves: a table, a report, JSON, JUnit, an exit code, and the smallest failing case."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from surefoot.crashtest.document import document, junit
from surefoot.crashtest.errors import CrashtestError
from surefoot.crashtest.main import run
from surefoot.crashtest.page import render
from tests.crashtest.world import charging, place

CONFIG = f"""
command = ["{sys.executable}", "charging.py"]
answer = "order 81 is paid"
fork = true
clean_runs = 1
only = "charges"
jobs = 2
env = {{ MODE = "duplicates" }}
[variants.sound]
env = {{ MODE = "sound" }}
[services.model]
kind = "model"
env = {{ OPENAI_BASE_URL = "/v1" }}
turns = [{{ text = "charge it" }}]
[services.shop]
kind = "http"
env = {{ SHOP_URL = "" }}
[[services.shop.routes]]
request = "POST /charges"
effect = "charge {{body.order}}"
key = "Idempotency-Key"
reply = {{ id = "ch_{{n}}" }}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = place(tmp_path / "agent", "charging.py")
    (made / "crashtest.toml").write_text(CONFIG)
    monkeypatch.chdir(made)
    return made


def test_the_smallest_failing_case_is_a_command_that_fails_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--minimise"]) == 1
    shown = capsys.readouterr().out
    told = " ".join(shown.split())
    assert "1 of 3 rows fail. Killed after shop POST /charges#1 acted and before its reply arrived" in told
    assert "smallest failing case, 3 of 3 trials" in told
    (command,) = [line.strip() for line in shown.splitlines() if line.strip().startswith("surefoot crashtest --row")]
    result = json.loads((folder / "crashtest-results" / "result.json").read_text())
    assert result["smallest"]["command"] == command
    words = shlex.split(command)
    assert words[:2] == ["surefoot", "crashtest"] and run([*words[2:], "--json", "--out", ""]) == 1
    again = json.loads(capsys.readouterr().out)
    assert again["rows_count"] == 1 and again["rows"][0]["duplicates"] == {"charge 81": 1}


def test_a_green_test_exits_with_0_and_its_reports_are_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--variant", "sound", "--lose-reply", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["passes"] and shown["kills"] == 3 and [row["kind"] for row in shown["rows"]][-1] == "lose_reply"
    assert shown["clean"]["effects"] == {"charge 81": 1} and shown["clean"]["model_calls"] == 1
    results = folder / "crashtest-results"
    assert sorted(p.name for p in results.iterdir()) == ["junit.xml", "report.html", "result.json"]
    suite = ElementTree.parse(results / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "0", "0")


def test_thresholds_say_what_is_tolerated(folder: Path) -> None:
    allowed = ["--allow", "duplicates=1,says_success=1", "--out", ""]
    assert run(allowed) == 0
    assert run([*allowed, "--allow", "duplicates=1,says_success=1,extra_model_calls=0"]) == 1


def test_a_harness_without_its_kill_exits_with_7(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--disarm", "--variant", "sound"]) == 7
    assert "3 of 3 rows prove nothing" in " ".join(capsys.readouterr().out.split())
    suite = ElementTree.parse(folder / "crashtest-results" / "junit.xml").getroot()[0]
    assert suite.get("errors") == "3"


def test_old_code_is_killed_and_new_code_restarted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = shlex.join([sys.executable, "charging.py"])
    new = shlex.join([sys.executable, "charging.py", "--version", "2"])
    assert run(["--variant", "sound", "--windows", "effect", "--deploy", old, new, "--json", "--out", ""]) == 0
    kinds = [row["kind"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert kinds == ["kill", "deploy"]


def test_the_program_forwards_what_follows_the_two_dashes(folder: Path) -> None:
    program = Path(sys.executable).parent / "surefoot"
    command = [
        str(program),
        "crashtest",
        "--row",
        "lose_reply:shop POST /charges#1",
        "--json",
        "--out",
        "",
        "--",
        sys.executable,
        "charging.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["rows"][0]["duplicates"] == {"charge 81": 1}


def test_reports_escape_what_an_agent_says(tmp_path: Path) -> None:
    nasty = "<script>alert('x')</script>\x00\x1b[31m"
    report = charging(tmp_path, "duplicates", only="charges", windows=["effect"], name=nasty)
    commands = {row.row.id: f"surefoot crashtest --row {nasty}" for row in report.rows}
    html, xml = render(report.result, commands), junit(report.result, commands)
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "http://" not in html.replace("http://www.w3.org", "") and "https://" not in html and "src=" not in html
    assert ElementTree.fromstring(xml).find(".//failure") is not None
    assert json.dumps(document(report.result, commands))


def test_the_page_has_one_cell_for_each_kill(tmp_path: Path) -> None:
    report = charging(tmp_path, "duplicates")
    html = render(report.result, {})
    assert html.count("<rect") == 6 and html.count('<a href="#row-kill') == len(report.result.failing) == 1
    for verdict in report.result.failing:
        assert f'id="{html.split("<a href=")[1].split(chr(34))[1][1:]}"' in html
        assert verdict.request.splitlines()[0] in html


def test_help_says_what_the_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "a row without its kill" in shown and "--lose-reply" in shown
    assert run(["record", "--help"]) == 0


def test_a_fixture_runs_it_from_pytest(folder: Path) -> None:
    (folder / "test_agent.py").write_text(
        "def test_sound(crashtest):\n    crashtest.run(variant='sound').assert_unharmed()\n"
        "def test_agent(crashtest):\n    crashtest.run(windows=['effect']).assert_no_duplicates()\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=folder)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "did “charge 81” twice" in done.stdout and "again: surefoot crashtest --row" in done.stdout


def test_nothing_of_the_tool_is_loaded_until_its_fixture_is_used() -> None:
    program = (
        "import sys, surefoot.crashtest.plugin; print(*[m for m in sys.modules if 'crashtest.' in m or m == 'rich'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["surefoot.crashtest.plugin"]


def test_a_row_that_names_no_boundary_of_this_agent_proves_nothing(folder: Path) -> None:
    assert run(["--row", "kill:effect:shop POST /refunds#1", "--out", ""]) == 7
    with pytest.raises(CrashtestError):
        charging(folder, "sound", only="refunds")


@pytest.mark.parametrize(
    ("row", "given", "words"),
    [
        ("kill:effect:shop POST /charges#1", ["--windows", "effect", "--lose-reply"], ["-- python a.py"]),
        ("deploy:effect:shop POST /charges#1", ["--windows", "effect"], ["--deploy 'python a.py' 'python b.py'"]),
        ("pause:effect:shop POST /charges#1", ["--restarts", "2"], ["--pause 0.2 ", "--restarts 2 ", "-- python a.py"]),
    ],
)
def test_the_command_of_a_row_tests_the_same_agent_again(
    folder: Path, capsys: pytest.CaptureFixture[str], row: str, given: list[str], words: list[str]
) -> None:
    """What was given on the command line and matters to the row is in it; what does not, is not."""
    python = shlex.quote(sys.executable)
    both = ["--deploy", f"{python} charging.py", f"{python} charging.py --new", "--pause", "0.2"]
    run([*given, *both, "--row", row, "--out", "", "--json"])
    (told,) = json.loads(capsys.readouterr().out)["rows"]
    told = told["command"].replace(f"{sys.executable} charging.py --new", "python b.py")
    told = told.replace(f"{sys.executable} charging.py", "python a.py")
    assert all(word in told for word in words), told
    assert told.startswith("surefoot crashtest ") and f"--row '{row}'" in told
    assert ("--pause" in told) == row.startswith("pause") and ("--deploy" in told) == row.startswith("deploy")
