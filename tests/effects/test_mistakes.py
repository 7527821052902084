"""A body that is written wrongly is in doubt like any other, and the log says so at its first attempt."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import surefoot
from surefoot import RunWaiting, Surefoot, effect, keyed, workflow
from surefoot.testing.clock import FakeClock


@pytest.mark.parametrize("mistake", ["a wait", "a name", "the network"])
def test_a_mistake_in_a_body_is_told_at_once_and_settled_by_contract(
    mistake: str, caplog: pytest.LogCaptureFixture
) -> None:
    told_while_it_tries: list[int] = []

    @effect(keyed(window=3600), budget=5, name="charge")
    def charge(attempt: Any) -> str:
        told_while_it_tries.append(len(caplog.records))
        if mistake == "a wait":
            surefoot.sleep(1)
        if mistake == "a name":
            return attempt.kee
        raise TimeoutError("no answer")

    @workflow
    def work() -> str:
        return charge()

    caplog.set_level(logging.WARNING, "surefoot")
    with Surefoot("memory:", clock=FakeClock()) as sf, pytest.raises(RunWaiting, match="in doubt"):
        sf.run(work, id="r")
    if mistake == "the network":
        assert not caplog.records
        return
    assert told_while_it_tries[:2] == [0, 1]
    said = caplog.records[0].getMessage()
    assert said.startswith("effect 'charge' of run 'r': attempt 1 ended with ") and "settled by contract" in said
    assert ("call it in the workflow, outside of steps" if mistake == "a wait" else "AttributeError") in said
