"""What a worker does next, taken from the real flows.

A worker that holds an effect is at the top of the loop of `perform._settle`, or has a send or an answer in its hands.
From there the real generator is driven up to the next thing that touches the world: a write, a send, a question, a
wait. Nothing of the protocol is told a second time here.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import repeat
from typing import Any

import msgspec
from msgspec.structs import replace

from surefoot.core import perform
from surefoot.core.commands import AskReceiver, Commit, Look, Now, RenewLease, SendEffect, Sleep
from surefoot.core.contract import Contract
from surefoot.core.digest import digest
from surefoot.core.effect import Effect, Evidence
from surefoot.core.flows import RunState
from surefoot.core.ids import derive_key
from surefoot.core.journal import Branch, Draft, EntryKind
from surefoot.core.outcome import Answered
from surefoot.core.writes import (
    Answer,
    Append,
    ClaimRun,
    EndRun,
    ParkUnasked,
    RecordEffect,
    TakeEffect,
    Verdict,
    Write,
)

from .records import CURRENT, NOW, STALE, TICK, TIMEOUT_TICKS, Setting, fold, vantage_of

KEY = derive_key("default", "ticket:acme")
RECEIPT = b'"receipt"'
REQUESTS = (b'{"amount":40}', b'{"amount":35}')
DIGESTS = tuple(digest(request) for request in REQUESTS)


class Call:
    """One use of the effect by one worker; `variant` is the request that it proposes."""

    def __init__(self, setting: Setting, variant: int) -> None:
        self.setting = setting
        self.branch, self.names, self.arguments = Branch(""), ("open_ticket",), REQUESTS[variant]
        self.contract: Contract = setting.contract
        self.identity, self.compensates = "ticket:acme", ""
        self.timeout_seconds = TIMEOUT_TICKS * TICK
        self.budget_seconds = setting.budget_ticks * TICK
        self.can_ask, self.variant = setting.can_ask, variant
        self.scope, self.needs_approval = (), False


class Hands:
    """One worker's way to the real flows: run, fence token, and the effect that it asks for."""

    def __init__(self, setting: Setting, worker: int, run_id: str, fence: int, variant: int) -> None:
        self.worker, self.run_id, self.fence = worker, run_id, fence
        self.call = Call(setting, variant)
        self.state = RunState(
            run_id,
            fence,
            [],
            owner=worker + 1,
            namespace="default",
            stamps=repeat(worker + 1),
            working={},
            find_call=lambda effect, request: None,
        )
        self.outcome = Draft(EntryKind.OUTCOME, "open_ticket", b"", "", b"", 0.0)

    def claim(self) -> Write:
        """Take the run."""
        return ClaimRun(run_id=self.run_id, vantage=vantage_of(self.worker + 1), why="", stamp=self.worker + 1)

    def take(self, fresh: bool) -> Write:
        """Declare the intent and its first attempt, or take over what stands there."""
        write = drive(perform._take(self.state, self.call, KEY, self.outcome, fresh))
        assert isinstance(write, TakeEffect)
        return replace(write, effect=fold(write.effect, self.call.setting))

    def park_unasked(self) -> Write:
        """The code of the run no longer asks for it."""
        return ParkUnasked(
            run_id=self.run_id, fence=self.fence, key=KEY, vantage=vantage_of(self.worker + 1), stamp=self.worker + 1
        )

    def settle(self, effect: Effect) -> Any:
        """What the loop does with an effect that is not attempted: a write, AskReceiver, Sleep, or None at its end."""
        return drive(perform._settle(self.state, self.call, effect, self.outcome, 0.0))

    def begin_until(self, before: Effect, after: Effect) -> float:
        """Until when the attempt that was just recorded may begin."""
        flow = perform._settle(self.state, self.call, before, self.outcome, 0.0)
        drive(flow)
        command = flow.send(Answer(Verdict.DONE, effect=after))
        assert isinstance(command, SendEffect)
        return command.begin_until

    def first_begin_until(self, effect: Effect) -> float:
        """The same for an attempt that was recorded with its intent."""
        command = next(perform._settle(self.state, self.call, effect, self.outcome, 0.0))
        assert isinstance(command, SendEffect)
        return command.begin_until

    def answered(self, effect: Effect, kind: str) -> Write:
        """Record an attempt's answer."""
        receipt = RECEIPT if kind in ("landed", "exists") else b""
        answer: object = Answered(kind=kind, receipt=receipt)
        return drive(perform._attempt(self.state, self.call, effect, self.outcome, NOW, NOW), answer)

    def interrupted(self, effect: Effect) -> Write:
        """Record that the sender was stopped while sending."""
        flow = perform._attempt(self.state, self.call, effect, self.outcome, NOW, NOW)
        next(flow)
        flow.throw(KeyboardInterrupt())
        return written(flow.send(NOW))

    def asked(self, effect: Effect, found: str, at: float) -> Write:
        """Record what the receiver showed at `at`."""
        value = RECEIPT if found == "found" else b""
        evidence = Evidence(at=at, kind="lookup", found=found, value=value, attempt=effect.attempts)
        return drive(perform._ask_receiver(self.state, self.call, effect, self.outcome), evidence)

    def append(self, effect: Effect) -> Write:
        """Put the outcome that another run reached into this run's journal."""
        value = msgspec.json.encode(perform.settled_of(effect, effect.receipt))
        draft = replace(self.outcome, value=value)
        return Append(run_id=self.run_id, fence=self.fence, draft=draft, stamp=self.worker + 1)

    def end(self, do: Any) -> Write:
        """End the work on the run."""
        return EndRun(run_id=self.run_id, fence=self.fence, do=do, at=NOW, stamp=self.worker + 1)


def written(command: object) -> Write:
    """The write of a commit."""
    assert isinstance(command, Commit), command
    return command.write


def drive(flow: Generator[Any, Any, Any], answer: object = None) -> Any:
    """Drive a flow up to a write (returned as such), a question, a wait, or its end (None)."""
    given = None
    while True:
        try:
            command = flow.send(given)
        except StopIteration:
            return None
        match command:
            case Now():
                given = NOW
            case Look():
                given = vantage_of(flow_owner(flow))
            case RenewLease():
                given = None
            case SendEffect() | AskReceiver() if answer is not None:
                given, answer = answer, None
            case Commit(write):
                return write
            case AskReceiver() | Sleep():
                return command
            case _:
                raise AssertionError(f"the model knows no {command}")


def flow_owner(flow: Generator[Any, Any, Any]) -> int:
    """The worker whose flow this is."""
    return flow.gi_frame.f_locals["state"].owner


def stale_write(write: Write, *, effect: bool, run: bool) -> Write:
    """The same write after somebody else raised a fence token that it carries; what it says of time is moot then."""
    if effect and isinstance(write, RecordEffect):
        write = replace(write, effect_fence=STALE)
    if run and isinstance(write, RecordEffect):
        write = replace(write, run_fence=STALE)
    if run and isinstance(write, TakeEffect | Append | EndRun | ParkUnasked):
        write = replace(write, fence=STALE)
    return write


def is_stale(write: Write) -> bool:
    """True if the write carries a fence token that does not count any more."""
    return STALE in (getattr(write, name, CURRENT) for name in ("fence", "run_fence", "effect_fence"))
