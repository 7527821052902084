"""Workflows and people for the tests of riding."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import surefoot
from surefoot.core.effect import Do, Event, Evidence, Status
from surefoot.core.writes import DecideEffect, Verdict
from surefoot.inside import Done, Parked, attempt

RETURN_SECONDS_MAX = 30.0
calls: list[str] = []


@surefoot.step
def look() -> int:
    calls.append("look")
    return len(calls)


@surefoot.effect(surefoot.opaque())
def pay(attempt: surefoot.Attempt, order: str) -> str:
    calls.append(f"pay {order}")
    raise TimeoutError("no answer came")


@surefoot.workflow
def pays(order: str) -> str:
    look()
    return pay(order)


@surefoot.workflow
async def pays_async(order: str) -> str:
    look()
    return pay(order)


@surefoot.workflow
def sleeps() -> str:
    look()
    surefoot.sleep(3600)
    return "rested"


@surefoot.workflow
def hears() -> Any:
    return surefoot.wait_for("word", str)


@surefoot.workflow
def fails() -> None:
    raise ValueError("no such order")


def given_back(sf: surefoot.Surefoot, workflow: surefoot.Workflow[..., Any], run_id: str) -> Done | Parked:
    """What an attempt returns; one that waits where it is fails here, and its run is cancelled so that it ends."""
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(attempt, sf, workflow, (), {}, run_id)
        try:
            return asked.result(RETURN_SECONDS_MAX)
        except TimeoutError:
            sf.cancel(run_id)
    raise AssertionError(f"{run_id!r} was not given back: its thread waited for {RETURN_SECONDS_MAX:.0f} s")


def decide(sf: surefoot.Surefoot, run_id: str, receipt: str) -> None:
    """What `surefoot resolve RUN EFFECT --happened RECEIPT` writes."""
    (effect,) = sf.store.find_effects([Status.PARKED], run_id=run_id)
    now = sf.engine.clock.now()
    value = f'"{receipt}"'.encode()
    evidence = Evidence(at=now, kind="decision", found=Do.HAPPENED, text="seen", value=value, who="ann", attempt=1)
    event = Event(do=Do.HAPPENED, at=now, receipt=value, reason="decided by ann: seen", evidence=evidence)
    answer = sf.engine.committer.commit(DecideEffect(key=effect.key, event=event, stamp=next(sf.engine.stamps)))
    assert answer.verdict is Verdict.DONE
