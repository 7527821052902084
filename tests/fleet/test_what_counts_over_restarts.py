"""What a journal says of attempts that gave nothing: they were made, and a restart does not give them back."""

from __future__ import annotations

from typing import Any

import pytest

from surefoot import Budget, BudgetExceeded, Surefoot, effect, keyed, step, workflow
from surefoot.core.meter import Used
from surefoot.runtime import calls
from surefoot.runtime.calls import Slot
from tests.runtime.support import Crash, FakeClock, restart


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> Any:
    restart()
    yield
    restart()


def test_attempts_of_a_step_that_failed_count_over_a_restart() -> None:
    lives, made = list[int](), list[str]()

    @step(retries=2)
    def fragile() -> None:
        made.append("step")
        raise OSError

    @effect(keyed(window=86400))
    def act(attempt: Any, name: str) -> None:
        made.append(name)

    @workflow
    def work() -> None:
        lives.append(1)
        try:
            fragile()
        except Exception:
            made.append("caught")
        if len(lives) == 1:
            raise Crash
        act("the fourth")
        act("the fifth")

    with Surefoot("memory:", clock=FakeClock()) as sf:
        with pytest.raises(Crash):
            sf.run(work, id="r", budget=Budget(attempts=4))
        with pytest.raises(BudgetExceeded, match="attempts 5, allowed 4"):
            sf.run(work, id="r")
    assert made == ["step", "step", "step", "caught", "caught", "the fourth"]


def test_attempts_of_a_call_that_failed_count_over_a_restart() -> None:
    @workflow
    def work() -> None:
        for _ in range(2):
            place = calls.place("a model call")
            assert place is not None
            found = calls.begin(place, kind="http", name="m", fingerprint=b"q", preview="q", tries=True)
            assert isinstance(found, Slot)
            found.fail(b"503")

    with Surefoot("memory:") as sf:
        sf.run(work, id="r", budget=Budget(attempts=9))
        read = sf.store.read_run("r")
        assert read is not None and Used(read[1]).attempts == 2
