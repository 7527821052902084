"""The harness of frameworks/ finds what is wrong, and never takes a row without its kill for a result."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from frameworks import table
from frameworks.kit import OPERATIONS
from frameworks.layout import Arm, Framework, framework, names
from frameworks.measure import faults, measure_row, started
from frameworks.pages import killed, program
from frameworks.results import Measured, load_all
from frameworks.rows import ROWS, USUAL

PLAIN = Framework(title="none", licence="-", packages=(), by="hand", name="../tests/frameworks", seconds=60.0)
OURS = load_all()


def run(row: str, **options: Any) -> tuple[Measured, list[str]]:
    """One row, held to what an arm with Surefoot is held to (a clean run makes 4 model calls)."""
    arm = Arm(name="tested", surefoot=True, options=options)
    measured = measure_row(PLAIN, "newest", arm, row, started(Path(sys.executable), PLAIN))
    return measured, faults(PLAIN, arm, measured, 4)


def test_a_clean_run_is_without_fault() -> None:
    measured, found = run("control")
    assert (list(measured.effects.values()), measured.model_calls, measured.ends, found) == ([1, 1, 1], 4, [0], [])


def test_a_killed_agent_that_repeats_what_it_did_is_found() -> None:
    measured, found = run("gap")
    assert list(measured.effects.values()) == [2, 2, 1]
    assert (measured.kills, measured.ends) == (1, [-9, 0])
    assert [fault.split()[0] for fault in found] == ["effects", "6"]


@pytest.mark.parametrize(
    ("row", "effects", "calls"),
    [
        ("before", [2, 1, 1], 6),
        ("tool end", [2, 2, 1], 6),
        ("returned", [2, 2, 1], 6),
        ("next reply lost", [2, 2, 1], 7),
    ],
)
def test_the_kill_strikes_where_the_row_says(row: str, effects: list[int], calls: int) -> None:
    measured, _ = run(row)
    assert (list(measured.effects.values()), measured.model_calls, measured.kills) == (effects, calls, 1)


def test_keys_alone_still_pay_the_model_again() -> None:
    measured, found = run("gap", keys=True)
    assert list(measured.effects.values()) == [1, 1, 1]
    assert found == ["6 model calls, 4 without a kill"]


@pytest.mark.parametrize(
    ("wrong", "fault"), [("skips", "effects"), ("answer", "it ended with 0 and not the right answer")]
)
def test_an_agent_that_loses_something_or_answers_wrong_is_found(wrong: str, fault: str) -> None:
    assert run("control", wrong=wrong)[1][0].startswith(fault)


def test_a_row_without_its_kill_is_a_fault_in_any_arm() -> None:
    alive = Measured(
        version="newest",
        arm="as published",
        surefoot=False,
        row="gap",
        effects=dict.fromkeys(OPERATIONS, 1),
        model_calls=4,
        kills=0,
        ends=[0],
        right=True,
    )
    assert faults(PLAIN, Arm(name="as published"), alive, 4) == ["0 processes died by SIGKILL, 1 expected"]


def test_a_page_s_program_is_killed_and_charges_once_and_without_its_key_twice() -> None:
    text = program(framework("openai"))
    keyless = text.replace("headers=attempt.headers", "headers={}")
    right, wrong = (killed(one, PLAIN, Path(sys.executable)) for one in (text, keyless))
    assert (right[:3], wrong[:3]) == (([-9, 0], 1, 2), ([-9, 0], 2, 2))
    assert (right.good(2), wrong.good(2), right.good(1)) == (True, False, False)


# --- what is declared and committed -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_each_framework_declares_what_exists(name: str) -> None:
    one = framework(name)
    assert one.not_run or (one.folder / "agent.py").exists()
    assert one.not_run or "newest" in one.versions
    for arm in one.arm:
        assert set(arm.rows) <= set(ROWS) and arm.planner in USUAL
        assert set(arm.versions) <= set(one.versions)


@pytest.mark.parametrize("name", names())
def test_each_page_begins_with_a_whole_program(name: str) -> None:
    needed = framework(name).program.needs
    runs_here = name != "mcp" and (not needed or shutil.which(needed) is not None)
    assert bool(program(framework(name))) == runs_here


@pytest.mark.parametrize("name", sorted(OURS))
def test_each_committed_row_has_its_kill_and_with_surefoot_each_effect_once(name: str) -> None:
    one = framework(name)
    arms = {arm.name: arm for arm in one.arm}
    clean = {(r.arm, r.version): r.model_calls for r in OURS[name].rows if r.row == "control"}
    for row in OURS[name].rows:
        calls = 0 if row.row not in table.SIX_ROWS else clean.get((row.arm, row.version), 0)
        assert faults(one, arms[row.arm], row, calls) == [], (row.arm, row.row)


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_page_says_what_the_committed_results_say(name: str) -> None:
    said = "\n".join(table.section(framework(name), OURS[name]))
    assert said in table.PAGE.read_text("utf-8"), "run: python -m frameworks --table"
