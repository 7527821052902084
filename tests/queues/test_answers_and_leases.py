"""Facts that only moments show: an answer that was lost, a lease that may be over, a worker that is told to stop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from surefoot import StoreError, Surefoot, step, workflow
from surefoot.core.dispatch import Limits, Queue, spent
from surefoot.core.dispatch_writes import ClaimReady
from surefoot.core.lease import Owner
from surefoot.core.run import RunStatus
from surefoot.runtime.worker import POLL_SECONDS
from surefoot.stores.memory import MemoryStore
from surefoot.testing.clock import FakeClock
from surefoot.testing.ledger import Ledger
from tests.runtime.test_lease_clock import Shared
from tests.worker import fleet as code
from tests.worker.conftest import until


@step
def double(n: int) -> int:
    return n * 2


@workflow(name="doubled here")
def doubled(n: int) -> int:
    return double(n)


def test_starts_that_are_kept_together_count_until_the_last_of_them_is_a_period_old() -> None:
    queue = Queue(name="q", limits=Limits(rate=2, period_seconds=64.0))
    queue = spent(spent(queue, 1, 1000.0), 1, 1000.9)
    assert len(queue.recent) == 1, "within one 64th of the period"
    assert [queue.starts(at) for at in (1064.5, 1064.9)] == [0, 2], "in 64 s from 1000.9 it would be the third"


def test_a_process_judges_its_own_lease_by_the_latest_and_anothers_by_the_earliest() -> None:
    """Ten seconds of uncertainty: its owner does not rely on a lease that may be over, and nobody else takes it."""
    clock = FakeClock()
    store = Shared(clock, ahead=100.0, there=5.0, back=5.0)
    with Surefoot(store, clock=clock, lease=60.0) as sf:
        engine = sf.engine
        engine.join()
        engine.lease_until = engine.lease_clock.latest() - 1.0
        assert engine.lease_clock.earliest() < engine.lease_until
        assert not engine.leased(), "it may be over"
        mine = Owner(
            id=engine.owner + 1, pid=1, host="", boot=store.lease_boot, started_at=0.0, lease_until=engine.lease_until
        )
        assert not engine.look(0).may_take_from(mine.id, mine), "it may not be over"


def test_a_worker_that_is_stopped_takes_nothing_new_and_gives_its_runs_back_although_the_program_goes_on(
    tmp_path: Path,
) -> None:
    code.LEDGER[:], code.HOLD[:] = [Ledger()], [tmp_path / "go on"]
    with Surefoot(tmp_path / "agents.db") as sf:
        worker = sf.worker([code.held])
        for name in ("one", "two"):
            sf.start(code.held, name, id=name, queue="default")
        worker.start()
        until(lambda: {"one", "two"} <= {line.name for line in code.LEDGER[0].lines()}, "the worker to have both")
        worker.ask()
        sf.start(code.held, "late", id="late", queue="default")
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        stopping.join(3 * POLL_SECONDS)  # time enough for a worker that would take it
        code.HOLD[0].touch()
        stopping.join(20)
        assert [sf.get(name).status for name in ("one", "two", "late")] == [RunStatus.PENDING] * 3
        assert [sf.get(name).claims for name in ("one", "two", "late")] == [1, 1, 0], "it took one more"
        begun = sorted(line.name for line in code.LEDGER[0].lines() if line.what == "begun")
        assert begun == ["one", "one before", "two", "two before"], "it went on behind the step"
        assert sf.run(code.held, "one", id="one") == "one after", "this Surefoot works on"


def test_what_a_claim_took_is_worked_on_although_its_answer_never_came() -> None:
    """The store fails right after it has committed the claim, and each time that it is asked for what became of it."""

    class Losing(MemoryStore):
        lost = 0

        def transact(self, writes: Any, *, again: bool = False) -> Any:
            answers = super().transact(writes, again=again)
            if not self.lost and any(
                isinstance(w, ClaimReady) and a.runs for w, a in zip(writes, answers, strict=True)
            ):
                self.lost = answers[0].runs[0].fence
                raise StoreError("the answer is lost")
            return answers

    store = Losing()
    with Surefoot(store) as sf, sf.worker([doubled]):
        assert sf.start(doubled, 4, id="one", queue="default").result(20) == 8
        run = sf.store.find_run("one")
        assert store.lost == 1 and run is not None and run.fence == 2 and not run.deaths


def test_a_worker_that_was_paused_takes_nothing_on_a_lease_that_is_over() -> None:
    """It was stopped for longer than its lease: it says first that it lives, and only then takes runs."""
    clock, living = FakeClock(), list[bool]()

    class Watching(MemoryStore):
        def transact(self, writes: Any, *, again: bool = False) -> Any:
            answers = super().transact(writes, again=again)
            if any(isinstance(write, ClaimReady) for write in writes):
                owner = self.read_owner(sf.engine.owner)
                living.append(owner is not None and owner.lease_until > clock.lease_now())
            return answers

    with Surefoot(Watching(), clock=clock, lease=300.0) as sf:
        worker = sf.worker([doubled])
        sf.engine.announce(worker.served)
        clock.advance(301.0)
        assert worker._claim(1) == 0
        assert living == [True]
