"""A small soak of each kind; `python -m tests.soak` is the whole one."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.core.effect import Effect
from surefoot.testing.postgres import PrivatePostgres
from tests.soak.soak import Plan, Report, soak

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(180)]


def came_into_doubt_by_a_disturbance(held: Effect) -> bool:
    """True if its sender died, was fenced, or had no answer in time."""
    return any(e.kind == "claim" or (e.kind == "answer" and "Timeout" in e.text) for e in held.evidence)


def check(report: Report) -> None:
    print("\n" + "\n".join(report.lines()))
    assert report.kills >= 2, "nothing was killed, so nothing was proved"
    assert {held.name for held in report.parked} <= {"send_mail"}
    assert all(came_into_doubt_by_a_disturbance(held) for held in report.parked)


def test_killed_paused_workers_and_a_killed_database_leave_every_effect_once(tmp_path: Path) -> None:
    plan = Plan(runs=100, workers=3, kill_every=40, pause_every=100, restart_every=120, restarts_max=1, effects=True)
    with PrivatePostgres(fsync=False) as server:
        report = soak(plan, server.url, tmp_path, server)
    check(report)
    assert report.restarts == 1 and report.pauses >= 1


def test_killed_workers_of_one_file_leave_every_effect_once(tmp_path: Path) -> None:
    check(soak(Plan(runs=40, workers=2, kill_every=30, effects=True), str(tmp_path / "soak.db"), tmp_path))
