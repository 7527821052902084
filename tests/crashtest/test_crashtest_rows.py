"""What can happen besides one kill: each row is survived by the sound agent, and catches one that is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surefoot.crashtest.errors import CrashtestError
from surefoot.crashtest.plan import Deed, Plan
from surefoot.crashtest.rows import CLEAN, Row, parse_row
from tests.crashtest.world import charging

KEYS = {"only": "charges", "windows": []}


@pytest.mark.parametrize("kind", ["lose_reply", "500_after", "late", "twice", "pause", "replicas"])
def test_a_sound_agent_survives(tmp_path: Path, kind: str) -> None:
    report = charging(tmp_path, "sound", rows=[kind], **KEYS)
    assert report.rows and all(v.fault == "" for v in report.rows)
    report.assert_unharmed()


@pytest.mark.parametrize("kind", ["lose_reply", "500_after", "late", "twice", "pause", "replicas"])
def test_an_agent_without_a_key_is_caught(tmp_path: Path, kind: str) -> None:
    report = charging(tmp_path, "no_state", rows=[kind], **KEYS)
    assert report.rows and all(v.fault == "" for v in report.rows)
    assert any(v.duplicates == {"charge 81": v.done["charge 81"] - 1} for v in report.rows)


def test_twice_kills_the_second_life_at_its_first_request(tmp_path: Path) -> None:
    report = charging(tmp_path, "sound", rows=["twice"], **KEYS)
    (row,) = report.rows
    assert row.kills == 2 and row.exit_codes == (-9, -9, 0)


def test_a_deploy_restarts_under_the_new_command(tmp_path: Path) -> None:
    new = [sys.executable, "charging.py", "--new"]
    report = charging(tmp_path, "sound", rows=["deploy"], new_command=new, **{**KEYS, "windows": ["effect"]})
    kill, deploy = report.rows
    assert (kill.row.kind, deploy.row.kind) == ("kill", "deploy")
    assert deploy.kills == 1 and not deploy.fails
    forgetful = [sys.executable, "-c", "print('order 81 is paid')"]
    broken = charging(
        tmp_path, "sound", rows=["deploy"], new_command=forgetful, only="charges", windows=["before"], fork=False
    )
    assert [v.lost for v in broken.rows] == [{}, {"charge 81": 1}]


def test_a_kill_as_soon_as_the_reply_is_read_leaves_no_time_to_write_it_down(tmp_path: Path) -> None:
    report = charging(tmp_path, "duplicates", only="charges", windows=["read"])
    (row,) = report.rows
    assert row.kills == 1 and row.fault == ""
    charging(tmp_path, "sound", only="charges", windows=["read"]).assert_unharmed()


@pytest.mark.parametrize(
    "row",
    [
        Row(kind="kill", window="effect", boundary="shop POST /charges#1"),
        Row(kind="pause", window="before", boundary="shop POST /a:b#2"),
        Row(kind="late", boundary="shop POST /charges#1"),
        Row(kind="replicas", copies=3),
        CLEAN,
    ],
    ids=lambda row: row.id,
)
def test_a_row_is_found_again_by_its_id(row: Row) -> None:
    assert parse_row(row.id) == row


@pytest.mark.parametrize("text", ["", "kill", "kill:never:x", "replicas:one", "late:"])
def test_an_id_of_no_row_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CrashtestError, match="kill:effect:shop POST /charges#1"):
        parse_row(text)


def test_a_plan_strikes_once_and_only_in_the_first_life() -> None:
    from surefoot.crashtest.boundary import Arrival
    from surefoot.testing.twins.messages import Call

    def arrival(number: int, life: int, occurrence: int) -> Arrival:
        call = Call(method="POST", path="/x")
        return Arrival(
            number=number,
            service="s",
            place="POST /x",
            occurrence=occurrence,
            life=life,
            call=call,
            at=0.0,
            is_model=False,
        )

    plan = Plan(Row(kind="kill", window="effect", boundary="s POST /x#2"))
    asked = [plan.ask(arrival(n, life, k)) for n, life, k in ((1, 1, 1), (2, 1, 2), (3, 1, 2), (4, 2, 2))]
    assert asked == [Deed.SERVE, Deed.KILL_EFFECT, Deed.SERVE, Deed.SERVE]
    fresh = Plan(Row(kind="kill", window="effect", boundary="s POST /x#2"))
    assert fresh.ask(arrival(1, 2, 2)) is Deed.SERVE  # a second life that gets there first proves nothing
