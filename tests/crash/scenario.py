"""One agent, one receiver, one clock: the world that outlives every process of a crash test.

A model writes a request, an effect sends it, and once more. The model answers differently every time it is asked, so a
step that ran twice would show in what was sent. What happened is counted in the receiver's ledger, or in the user's own
database for `same_transaction`; the agent is never asked.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from surefoot import (
    RunWaiting,
    Surefoot,
    create_receipts_table,
    effect,
    keyed,
    lookup,
    natural,
    opaque,
    same_transaction,
    step,
    workflow,
)
from surefoot.core.effect import Do, Event, Evidence, Status
from surefoot.core.journal import FENCE, EntryKind
from surefoot.core.run import RunStatus
from surefoot.core.writes import DecideEffect, Verdict
from surefoot.runtime.app import Durability
from surefoot.stores.memory import MemoryStore
from surefoot.testing.clock import FakeClock
from surefoot.testing.crash import CrashDriver, SimulatedCrash, abandon
from surefoot.testing.ledger import Ledger, performed
from surefoot.testing.receiver import Receiver

RUN = "order-acme"
TIMEOUT, LATE, LAG = 1.0, 2.0, 0.5
FAULTS = ("none", "not_performed", "timeout", "late", "500", "reset")
PROMISES: dict[str, Callable[[], Any]] = {
    "keyed": lambda: keyed(window=86400),
    "natural": natural,
    "lookup": lambda: lookup(lag=LAG),
    "opaque": opaque,
}


class World:
    """Everything that is not the agent's process. `kind` is the receiver's promise, `fault` what it does first."""

    def __init__(
        self,
        kind: str,
        fault: str,
        folder: Path,
        *,
        store: str,
        asynchronous: bool = False,
        durability: Durability = "sync",
    ) -> None:
        self.kind, self.fault, self.folder, self.asynchronous = kind, fault, folder, asynchronous
        self.durability: Durability = durability
        self.clock = FakeClock()
        self.ledger = Ledger()
        self.receiver = Receiver(
            self.ledger, now=self.clock.now, after=self.clock.at, late_seconds=LATE, lag_seconds=LAG
        )
        self.place: MemoryStore | Path = MemoryStore() if store == "memory" else folder / "agents.db"
        self.surefoot: Surefoot | None = None
        self.model = itertools.count(1)
        self.begun: list[str] = []
        self.acked: list[str] = []
        self.durable: dict[str, int] = {}
        self.lives = 0
        self.decisions = 0
        if kind == "same_transaction":
            self.connect = _app_database(self)
        self.workflow = _async_agent(self) if asynchronous else _agent(self)

    # --- what happens in the world --------------------------------------------------------------------------------

    def send(self, attempt: Any, name: str, text: str) -> dict[str, Any]:
        """The request leaves. Before it does, its intent and all that it depends on must be on disk (R2)."""
        self.check_barrier(attempt)
        if self.kind == "same_transaction":
            return _in_app_database(self, attempt, name, text)
        reply = self.receiver.send(self.kind, name, {"text": text}, key=attempt.key, fault=self.fault)
        if reply.status == 0:
            self.clock.advance(attempt.timeout)
        return reply.take()

    def check_barrier(self, attempt: Any) -> None:
        assert self.surefoot is not None
        held = self.surefoot.store.read_effect(attempt.effect)
        read = self.surefoot.store.read_run(RUN)
        assert held is not None and read is not None, "a request left without a durable intent"
        assert held.status is Status.ATTEMPTED and held.attempts == attempt.number
        recorded = {entry.slot for entry in read[1]}
        assert held.slot in recorded, "a request left before its intent was in the journal"
        assert set(self.acked) <= recorded, "a request left before what it depends on was on disk"

    def find(self, name: str) -> dict[str, Any] | None:
        found = self.receiver.find(name)
        return found[0] if found else None

    def counted(self) -> Counter[str]:
        """How often each effect really happened."""
        if self.kind == "same_transaction":
            with sqlite3.connect(self.folder / "app.db") as db:
                return Counter(name for (name,) in db.execute("SELECT name FROM orders"))
        return performed(self.ledger.lines())

    # --- the agent's lives ----------------------------------------------------------------------------------------

    def open(self) -> Surefoot:
        self.surefoot = Surefoot(self.place, clock=self.clock, durability=self.durability)
        self.lives += 1
        return self.surefoot

    def run(self, surefoot: Surefoot) -> Any:
        if self.asynchronous:
            return asyncio.run(_awaited(surefoot, self.workflow))
        return surefoot.run(self.workflow, "acme", id=RUN)

    def live(self, driver: CrashDriver | None = None) -> Any:
        """One life of the agent: its result, or None if it died. A person decides what is parked meanwhile."""
        surefoot = self.open()
        if driver is not None:
            driver.drive(surefoot)
        try:
            while True:
                try:
                    result = self.run(surefoot)
                except RunWaiting:
                    self.decide(surefoot)
                else:
                    surefoot.close()
                    return result
        except SimulatedCrash:
            self.remember_durable(surefoot)
            abandon(surefoot)
            return None

    def decide(self, surefoot: Surefoot) -> None:
        """A person looks at the receiver's own books, when nothing can be under way any more, and says what is so."""
        parked = surefoot.store.find_effects([Status.PARKED])
        assert parked, "the run waits for a person, and nothing is parked"
        self.clock.advance(TIMEOUT + LATE + 10)
        for held in parked:
            assert held.contract.kind == "opaque" and not held.contract.at_least_once, f"{held.contract.kind} parked"
            name = msgspec.json.decode(held.request)["name"]
            receipt = msgspec.json.encode(self.find(name))
            happened = receipt != b"null"
            do = Do.HAPPENED if happened else Do.DID_NOT_HAPPEN
            evidence = Evidence(at=self.clock.now(), kind="decision", found=do, who="a person", text="read the books")
            event = Event(do=do, at=self.clock.now(), receipt=receipt if happened else b"", evidence=evidence)
            write = DecideEffect(key=held.key, event=event, stamp=next(surefoot.engine.stamps))
            assert surefoot.engine.committer.commit(write).verdict is Verdict.DONE
            self.decisions += 1

    def remember_durable(self, surefoot: Surefoot) -> None:
        """What the journal holds when a process dies must never run again (R1)."""
        self.check_durable()
        read = surefoot.store.read_run(RUN)
        for entry in read[1] if read is not None else ():
            if entry.kind == EntryKind.STEP:
                self.durable[entry.slot] = self.begun.count(entry.slot)
        if self.durability == "sync":
            assert set(self.acked) <= set(self.durable), "an acknowledged step is not in the journal"

    def check_durable(self) -> None:
        again = {slot for slot, times in self.durable.items() if self.begun.count(slot) != times}
        assert not again, f"recorded steps ran again: {again}"

    # --- what must hold at the end --------------------------------------------------------------------------------

    def check(self, result: Any) -> None:
        self.check_durable()
        assert self.counted() == {"first": 1, "second": 1}, f"{self.kind}: duplicates or losses: {self.counted()}"
        assert [r["name"] for r in (result["first"], result["second"])] == ["first", "second"]
        bodies = {(line.name, line.body) for line in self.ledger.lines() if line.what in ("performed", "repeated")}
        assert len(bodies) == len({name for name, _ in bodies}), "one effect was sent with two different requests"
        store = Surefoot(self.place, clock=self.clock)
        read = store.store.read_run(RUN)
        effects = store.store.find_effects(run_id=RUN)
        store.close()
        assert read is not None and read[0].status is RunStatus.SUCCEEDED
        assert [e.status for e in effects] == [Status.CONFIRMED] * 2
        assert read[0].length == len(read[1])
        recorded = [entry.slot for entry in read[1] if not entry.slot.startswith(FENCE)]
        assert recorded == ["ask", "act", "act", "ask#1", "act#1", "act#1"], (
            "two steps, and an intent and an outcome for each effect, each once, in the order in which they happened"
        )


async def _awaited(surefoot: Surefoot, body: Any) -> Any:
    return await surefoot.run(body, "acme", id=RUN)


# --- the agent ----------------------------------------------------------------------------------------------------


def _contract(world: World) -> Any:
    return same_transaction(world.connect) if world.kind == "same_transaction" else PROMISES[world.kind]()


def _agent(world: World) -> Any:
    @step(name="ask")
    def ask_model(about: str) -> dict[str, str]:
        world.begun.append("ask" if "ask" not in world.acked else "ask#1")
        return {"text": f"{about}, in words no. {next(world.model)}"}

    @effect(_contract(world), timeout=TIMEOUT, name="act")
    def act(attempt: Any, name: str, text: str) -> dict[str, Any]:
        return world.send(attempt, name, text)

    if world.kind == "lookup":

        @act.lookup
        def find(attempt: Any, name: str, text: str) -> dict[str, Any] | None:
            return world.find(name)

    @workflow(name="crossing")
    def crossing(partner: str) -> dict[str, Any]:
        world.acked.clear()
        one = ask_model(partner)
        world.acked.append("ask")
        first = act("first", one["text"])
        two = ask_model("again")
        world.acked.append("ask#1")
        return {"first": first, "second": act("second", two["text"])}

    return crossing


def _async_agent(world: World) -> Any:
    @step(name="ask")
    async def ask_model(about: str) -> dict[str, str]:
        world.begun.append("ask" if "ask" not in world.acked else "ask#1")
        return {"text": f"{about}, in words no. {next(world.model)}"}

    @effect(_contract(world), timeout=TIMEOUT, name="act")
    async def act(attempt: Any, name: str, text: str) -> dict[str, Any]:
        return world.send(attempt, name, text)

    if world.kind == "lookup":

        @act.lookup
        async def find(attempt: Any, name: str, text: str) -> dict[str, Any] | None:
            return world.find(name)

    @workflow(name="async crossing")
    async def crossing(partner: str) -> dict[str, Any]:
        world.acked.clear()
        one = await ask_model(partner)
        world.acked.append("ask")
        first = await act("first", one["text"])
        two = await ask_model("again")
        world.acked.append("ask#1")
        return {"first": first, "second": await act("second", two["text"])}

    return crossing


# --- the user's own database --------------------------------------------------------------------------------------


class Connection:
    """A DB-API connection whose next commit may be lost on its way back: it commits, then raises."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self.loses_answer = False

    def cursor(self) -> sqlite3.Cursor:
        return self._db.cursor()

    def commit(self) -> None:
        self._db.commit()
        if self.loses_answer:
            raise TimeoutError("the answer to COMMIT was lost")

    def rollback(self) -> None:
        self._db.rollback()

    def close(self) -> None:
        self._db.close()


def _app_database(world: World) -> Callable[[], Connection]:
    path = world.folder / "app.db"
    setup = sqlite3.connect(path)
    create_receipts_table(setup)
    setup.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT, text TEXT)")
    setup.execute("DELETE FROM orders")
    setup.execute("DELETE FROM surefoot_receipts")
    setup.commit()
    setup.close()
    return lambda: Connection(path)


def _in_app_database(world: World, attempt: Any, name: str, text: str) -> dict[str, Any]:
    first = world.receiver._arrivals[name] = world.receiver._arrivals.get(name, 0) + 1
    fault = world.fault if first == 1 else "none"
    if fault == "not_performed":
        raise TimeoutError("the database did not answer")
    cursor = attempt.connection.cursor()
    cursor.execute("INSERT INTO orders VALUES (?, ?)", (name, text))
    if fault in ("500", "reset"):
        raise RuntimeError("the server closed the connection inside the transaction")
    attempt.connection.loses_answer = fault in ("timeout", "late")
    return {"name": name}
