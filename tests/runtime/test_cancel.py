"""`Surefoot.cancel`: nothing new is begun, what had happened is kept, and a finished run is left alone."""

from pathlib import Path

import pytest

from surefoot import RunCancelled, RunNotFound, Surefoot, step, workflow
from tests.runtime.support import Crash, slots


def test_cancel_ends_a_run_that_nobody_works_on(db: Path) -> None:
    @workflow
    def flow() -> None:
        raise Crash

    with Surefoot(db) as sf:
        with pytest.raises(Crash):
            sf.run(flow, id="r")
        view = sf.cancel("r")
        assert view.status == "cancelled" and view.cancel_requested
        with pytest.raises(RunCancelled):
            sf.run(flow, id="r")
        assert sf.cancel("r").status == "cancelled"
        with pytest.raises(RunNotFound):
            sf.cancel("none")


def test_cancel_of_a_finished_run_changes_nothing(db: Path) -> None:
    @workflow
    def flow() -> int:
        return 1

    with Surefoot(db) as sf:
        sf.run(flow, id="r")
        assert sf.cancel("r").status == "succeeded"
        assert sf.run(flow, id="r") == 1


def test_a_live_run_stops_at_its_next_record_when_cancelled(db: Path) -> None:
    ran: list[int] = []

    @step
    def work(n: int) -> int:
        ran.append(n)
        if n == 1:
            sf.cancel("r")
        return n

    @workflow
    def flow() -> None:
        try:
            for n in range(5):
                work(n)
        except Exception:
            work(99)

    with Surefoot(db) as sf:
        with pytest.raises(RunCancelled):
            sf.run(flow, id="r")
        assert sf.get("r").status == "cancelled"
        assert len(slots(sf, "r")) == 2, "what had happened when it was cancelled is kept"
    assert ran == [0, 1]
