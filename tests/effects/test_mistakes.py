"""A body that is written wrongly is in doubt like any other, and the log says so at its first attempt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import NotSent, Refused, RunWaiting, Surefoot, effect, keyed, lookup, workflow
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


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (lambda: Refused(404), "refused", "404"),  # type: ignore[arg-type]
        (lambda: Refused(None, code=4.5), "refused", "None"),  # type: ignore[arg-type]
        (lambda: Refused("no \ud800", code="\udfff"), "refused", "no \\ud800"),
        (lambda: NotSent("a file \udcff"), "refused", "NotSent: a file \\udcff"),
        (lambda: RuntimeError("\ud800"), "parked", "in doubt"),
    ],
)
def test_what_an_exception_holds_never_stops_its_effect_from_being_recorded(
    tmp_path: Path, error: Callable[[], Exception], status: str, said: str
) -> None:
    """Python's own file names hold surrogates, which no store can keep."""

    @effect(keyed(window=3600), budget=1, name="charge")
    def charge(attempt: Any) -> str:
        raise error()

    @workflow
    def work() -> str:
        return charge()

    with Surefoot(tmp_path / "agents.db", clock=FakeClock()) as sf:
        with pytest.raises((Refused, RunWaiting)):
            sf.run(work, id="r")
        (held,) = sf.store.find_effects()
        assert held.status == status and said in held.reason


def test_a_lookup_that_raises_what_cannot_be_stored_is_evidence_all_the_same(tmp_path: Path) -> None:
    @effect(lookup(lag=1), budget=5, name="charge")
    def charge(attempt: Any) -> str:
        raise TimeoutError

    @charge.lookup
    def _(attempt: Any) -> str:
        raise RuntimeError("\ud800")

    @workflow
    def work() -> str:
        return charge()

    with Surefoot(tmp_path / "agents.db", clock=FakeClock()) as sf:
        with pytest.raises(RunWaiting):
            sf.run(work, id="r")
        (held,) = sf.store.find_effects()
        assert any(each.text == "RuntimeError: \\ud800" for each in held.evidence)


def test_a_workflow_that_fails_with_what_cannot_be_stored_fails(tmp_path: Path) -> None:
    @workflow
    def work() -> None:
        raise RuntimeError("\ud800")

    with Surefoot(tmp_path / "agents.db") as sf:
        with pytest.raises(RuntimeError):
            sf.run(work, id="r")
        assert sf.get("r").status == "failed"
