"""The agent that is really killed, and the people who decide at once: each job runs in a forked process of its own.

The receiver's ledger is a file; a line is on disk before the effect's body goes on, so a SIGKILL cannot take it back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot import ApprovalClosed, Surefoot, approve, effect, keyed, workflow
from surefoot.core.commands import Command, Commit, Record, SendEffect
from surefoot.testing.ledger import Ledger, Line, read_ledger

LEDGER = [Path()]
SAY: list[Callable[[str], object]] = [print]


@effect(keyed(window=3600), needs_approval=True, timeout=5)
def refund(attempt: Any, charge: str, amount: int) -> int:
    """Honours keys, as its contract says: a known key changes nothing."""
    known = LEDGER[0].exists() and any(line.key == attempt.key for line in read_ledger(LEDGER[0]))
    ledger = Ledger(LEDGER[0])
    what = "repeated" if known else "performed"
    ledger.add(Line(what=what, name=charge, at=0.0, key=attempt.key, body=str(amount)))
    ledger.close()
    return amount


@workflow
def pay(charge: str) -> int:
    approve(refund.request(charge, amount=10), by="cfo", within=600)
    return refund(charge, 10)


@workflow
async def pay_async(charge: str) -> int:
    await approve(refund.request(charge, amount=10), by="cfo", within=600)
    return refund(charge, 10)


def live(say: Callable[[str], object], url: str, ledger: str, run: str, place: str, asynchronous: bool) -> None:
    """One life of the agent, which ends at `place` if it gets there: "before AskApproval", "after SendEffect" …"""
    SAY[0], LEDGER[0] = say, Path(ledger)
    with Surefoot(url) as sf:
        _die_at(sf, place)
        if asynchronous:
            import asyncio

            say(f"result {asyncio.run(_run(sf, run))}")
        else:
            say(f"result {sf.run(pay, run, id=run)}")


async def _run(sf: Surefoot, run: str) -> int:
    return await sf.run(pay_async, run, id=run)


def _name_of(command: Command[Any]) -> str:
    match command:
        case Commit(write):
            return type(write).__name__
        case Record(draft):
            return draft.slot.partition(":")[0] + " read"
        case _:
            return type(command).__name__


def _die_at(sf: Surefoot, place: str) -> None:
    when, _, name = place.partition(" ")

    def strike(at: str, command: Command[Any]) -> None:
        if at == when and _name_of(command) == name:
            SAY[0](f"struck {place}")
            os.kill(os.getpid(), signal.SIGKILL)

    def around(handle: Any) -> Any:
        def handled(session: Any, command: Any) -> Any:
            strike("before", command)
            value = handle(session, command)
            strike("after", command)
            return value

        return handled

    def around_async(handle: Any) -> Any:
        async def handled(session: Any, command: Any) -> Any:
            strike("before", command)
            value = await handle(session, command)
            strike("after", command)
            return value

        return handled

    engine, watched = sf.engine, (Commit, Record, SendEffect)
    by_thread, by_task = engine.sync_handlers, engine.async_handlers
    engine.sync_handlers = {**by_thread, **{kind: around(by_thread[kind]) for kind in watched}}
    engine.async_handlers = {**by_task, **{kind: around_async(by_task[kind]) for kind in watched}}


def decide_at_once(say: Callable[[str], object], url: str, approval: str, digest: str, people: int, go: str) -> None:
    """So many people decide at the same time, once the file `go` is there; each says how it went."""
    with Surefoot(url) as sf:
        ready = threading.Barrier(people)

        def one(number: int) -> None:
            who = f"{os.getpid()}-{number}"
            ready.wait()
            if number == 0:
                say("ready")
            while not Path(go).exists():
                pass
            try:
                if number % 2:
                    sf.deny(approval, who=who, why="no")
                else:
                    sf.approve(approval, who=who, digest=digest)
                say(f"won {who}")
            except ApprovalClosed as closed:
                say(f"lost to {closed.why.partition(' ')[0]}")

        threads = [threading.Thread(target=one, args=(number,)) for number in range(people)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
