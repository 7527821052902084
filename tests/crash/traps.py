"""One effect against one receiver, on a clock turned by hand: the bench on which the traps are set."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from surefoot import Surefoot, effect, workflow
from surefoot.core.commands import SendEffect
from surefoot.core.effect import Effect, Status
from surefoot.stores.memory import MemoryStore
from surefoot.testing.clock import FakeClock
from surefoot.testing.crash import SimulatedCrash, abandon, crash_at
from surefoot.testing.ledger import Ledger, performed
from surefoot.testing.receiver import Receiver, after_real_time

TIMEOUT = 1.0


class Trap:
    """`fault` is what the receiver does to the first arrivals; `lag` is when its lookup begins to show them."""

    def __init__(
        self,
        contract: Any,
        fault: str = "",
        *,
        lag: float = 0.0,
        lookup: bool | Callable[[], Any] = False,
        identity: str | None = "pay:{order}",
        place: Any = None,
        clock: Any = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.ledger = Ledger()
        self.receiver = Receiver(
            self.ledger,
            now=self.clock.now,
            after=getattr(self.clock, "at", after_real_time),
            late_seconds=2.0,
            lag_seconds=lag,
        )
        self.contract, self.fault, self.lookup, self.identity = contract, fault, lookup, identity
        self.place = MemoryStore() if place is None else place
        self.failures: list[Exception] = []
        self.keys: set[str] = set()
        self.pay = self.make_effect("pay")
        self.workflow = self.make_workflow(self.pay)

    # --- the agent's code -----------------------------------------------------------------------------------------

    def make_effect(self, name: str, **options: Any) -> Any:
        @effect(self.contract, identity=self.identity, timeout=TIMEOUT, name=name, **options)
        def pay(attempt: Any, order: str, amount: int) -> dict[str, Any]:
            return self.send(attempt, order, amount)

        if self.lookup:

            @pay.lookup
            def find(attempt: Any, order: str, amount: int) -> dict[str, Any] | None:
                if callable(self.lookup):
                    return self.lookup()
                found = self.receiver.find(order)
                return found[0] if found else None

        return pay

    def make_workflow(self, pay: Callable[..., Any]) -> Any:
        """A run pays, and sees failures as user code does; `pay` may do more than that."""

        @workflow(name="checkout")
        def checkout(order: str, amount: int) -> Any:
            try:
                return pay(order, amount)
            except Exception as error:
                self.failures.append(error)
                raise

        return checkout

    def send(self, attempt: Any, order: str, amount: int) -> dict[str, Any]:
        self.keys.add(attempt.key)
        promise = self.contract.kind
        reply = self.receiver.send(promise, order, {"amount": amount}, key=attempt.key, fault=self.fault)
        if reply.status == 0:
            self.clock.advance(attempt.timeout)
        return reply.take()

    # --- running it -----------------------------------------------------------------------------------------------

    def open(self) -> Surefoot:
        return Surefoot(self.place, clock=self.clock)

    def run(self, order: str = "o1", amount: int = 40, *, id: str = "r1", code: Any = None) -> Any:
        with self.open() as surefoot:
            return surefoot.run(code or self.workflow, order, amount, id=id)

    def die_while_sending(self, order: str = "o1", amount: int = 40, *, id: str = "r1") -> None:
        """The process dies when the request has left and nothing is recorded about its answer."""
        surefoot = self.open()
        driver = crash_at(1, when="after", kind=SendEffect).drive(surefoot)
        with pytest.raises(SimulatedCrash):
            surefoot.run(self.workflow, order, amount, id=id)
        assert driver.struck == "SendEffect"
        abandon(surefoot)

    def as_another_process(self, code: Any = None) -> Any:
        """Run "r1" from inside a run, as somebody else would who knows nothing of it."""

        def run() -> Any:
            with self.open() as taker:
                return taker.run(code or self.workflow, "o1", 40, id="r1")

        return contextvars.Context().run(run)

    # --- what happened --------------------------------------------------------------------------------------------

    def sent(self, order: str = "o1") -> int:
        """How many requests arrived."""
        return self.receiver._arrivals.get(order, 0)

    def performed(self, order: str = "o1") -> int:
        return performed(self.ledger.lines())[order]

    def looked_up(self) -> int:
        return sum(line.what == "looked_up" for line in self.ledger.lines())

    def effects(self) -> list[Effect]:
        with self.open() as surefoot:
            return surefoot.store.find_effects()

    def status(self) -> Status:
        (held,) = self.effects()
        return held.status

    def only(self) -> Effect:
        (held,) = self.effects()
        return held
