"""A tool that finds nothing is worth nothing: each verdict has an agent that is broken in that way, and is caught."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from surefoot.crashtest.judge import Verdict
from tests.crashtest.world import OPAQUE_SHOP, charging

CHARGE = "shop POST /charges#1"


def only(verdicts: list[Verdict], window: str) -> Verdict:
    (found,) = (v for v in verdicts if v.row.window == window and v.row.boundary == CHARGE)
    return found


def test_a_sound_agent_is_green_and_each_kill_is_proved(tmp_path: Path) -> None:
    report = charging(tmp_path, "sound", clean_runs=2)
    assert len(report.rows) == 6
    for verdict in report.rows:
        assert verdict.fault == "" and verdict.kills == 1 and verdict.exit_codes[0] == -9
    report.assert_unharmed()
    report.assert_extra_model_calls(1)
    assert "6 kills proved, your agent did everything exactly once" in report.headline


def test_an_agent_that_charges_twice_is_caught_in_the_window_where_it_does(tmp_path: Path) -> None:
    report = charging(tmp_path, "duplicates", only="charges")
    assert [v.duplicates for v in report.rows][:2] == [{}, {"charge 81": 1}]
    gap = only(report.rows, "effect")
    assert gap.says_success and (gap.keyless, gap.requests) == (2, 2)
    assert '"order": "81"' in gap.request
    with pytest.raises(AssertionError, match=r"did “charge 81” twice.*the idempotency key was missing in 2 of 2"):
        report.assert_no_duplicates()


def test_an_agent_that_loses_its_work_is_caught_and_so_is_its_success(tmp_path: Path) -> None:
    report = charging(tmp_path, "loses", only="charges", windows=["before", "effect"])
    before = only(report.rows, "before")
    assert before.lost == {"charge 81": 1} and before.says_success
    assert not only(report.rows, "effect").fails
    with pytest.raises(AssertionError, match="never did “charge 81” and said success"):
        report.assert_nothing_lost()


@pytest.mark.parametrize("mode", ["strands", "hangs"])
def test_an_agent_that_leaves_its_work_running_for_ever_is_caught(tmp_path: Path, mode: str) -> None:
    status = [sys.executable, "-c", "print(open('state/status').read())"] if mode == "strands" else None
    report = charging(tmp_path, mode, only="charges", windows=["effect"], status=status, timeout_seconds=6, answer=None)
    (row,) = report.rows
    assert row.stranded and not row.fault
    with pytest.raises(AssertionError, match="stranded"):
        report.assert_never_stranded()


def test_an_agent_that_cannot_be_restarted_is_given_up(tmp_path: Path) -> None:
    report = charging(tmp_path, "gives_up", only="charges", windows=["before"], answer=None)
    (row,) = report.rows
    assert row.exit_codes == (-9, 1, 1) and "remove it by hand" in row.gave_up
    with pytest.raises(AssertionError, match="remove it by hand"):
        report.assert_never_stranded()


def test_an_answer_that_is_wrong_after_the_restart_is_caught_although_it_exits_with_0(tmp_path: Path) -> None:
    report = charging(tmp_path, "wrong_answer", only="charges", windows=["recorded"])
    (row,) = report.rows
    assert "not paid" in row.wrong_answer and row.says_success and row.exit_codes[-1] == 0
    with pytest.raises(AssertionError, match="wrong_answer"):
        report.assert_right_answer()


def test_a_check_command_judges_the_answer_from_the_ledger_and_the_output(tmp_path: Path) -> None:
    program = (
        "import os, sys; lines = open(os.environ['SUREFOOT_CRASHTEST_LEDGER']).read().count('performed');"
        "text = open(os.environ['SUREFOOT_CRASHTEST_OUTPUT']).read();"
        "sys.exit(0 if lines == 1 and 'paid' in text else 'no')"
    )
    keys = {"only": "charges", "windows": ["effect"], "check": [sys.executable, "-c", program], "answer": None}
    charging(tmp_path / "a", "sound", **keys).assert_unharmed()
    (row,) = charging(tmp_path / "b", "duplicates", **keys).rows
    assert row.wrong_answer == "no"


def test_an_amount_that_changes_with_the_restart_is_caught(tmp_path: Path) -> None:
    report = charging(tmp_path, "wrong_amount", only="charges", windows=["before"])
    (row,) = report.rows
    assert "2000" in row.wrong["charge 81"] and "1999" in row.wrong["charge 81"]
    with pytest.raises(AssertionError, match="wrong content"):
        report.assert_right_content()


def test_an_agent_that_stops_and_asks_is_no_failure_unless_it_is_said_to_be_one(tmp_path: Path) -> None:
    report = charging(tmp_path, "gives_up", only="charges", windows=["before"], asks_exit=[1], answer=None)
    (row,) = report.rows
    assert row.asks and not row.fails and row.exit_codes == (-9, 1)
    with pytest.raises(AssertionError, match="asks"):
        report.assert_never_asks()


def test_a_harness_whose_kill_is_removed_fails_every_row(tmp_path: Path) -> None:
    report = charging(tmp_path, "sound", disarmed=True)
    assert len(report.result.faults) == len(report.rows) == 6
    assert all("was not killed" in verdict.fault for verdict in report.rows)
    with pytest.raises(AssertionError, match="6 of 6 rows prove nothing"):
        report.assert_no_duplicates()


def test_a_process_that_left_the_group_dies_with_the_agent(tmp_path: Path) -> None:
    report = charging(tmp_path, "escapes", only="charges", windows=["effect"], fork=False, restarts=0, answer=None)
    (row,) = report.rows
    assert row.kills == 1 and row.strays == 1
    time.sleep(1.6)
    assert not (tmp_path / "late").exists()


def test_children_that_are_left_when_the_agent_ends_are_told_and_ended(tmp_path: Path) -> None:
    report = charging(tmp_path, "escapes", only="model", windows=["before"], fork=False)
    assert any("left 1 processes behind" in text for text in report.result.warnings)
    time.sleep(1.6)
    assert not (tmp_path / "late").exists()


def test_a_key_helps_only_where_the_receiver_honours_it(tmp_path: Path) -> None:
    services = {
        "model": {"kind": "model", "env": {"OPENAI_BASE_URL": "/v1"}, "turns": [{"text": "x"}]},
        "shop": OPAQUE_SHOP,
    }
    report = charging(tmp_path, "sound", services=services, only="charges", windows=["effect"])
    (row,) = report.rows
    assert row.duplicates == {"charge 81": 1} and row.keyless == 0
    with pytest.raises(AssertionError, match="all 2 requests carried a key"):
        report.assert_no_duplicates()


def test_what_was_paid_again_is_counted_in_calls_and_tokens(tmp_path: Path) -> None:
    report = charging(tmp_path, "sound", windows=["effect"])
    assert [(v.extra_model_calls, v.extra_tokens) for v in report.rows] == [(1, 100), (1, 100)]
    assert json.loads(json.dumps([v.recover_seconds > 0 for v in report.rows])) == [True, True]
