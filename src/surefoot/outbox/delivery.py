"""One row, delivered: an effect outside any run, under the row's identity.

It goes through the same flow as every effect, up to where that flow would wait: a row that has to wait is put off, so
it never holds up another. Whatever was recorded before a crash is found again under the same identity.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..core.commands import Flow, Sleep
from ..core.digest import BLOB_MARK, digest
from ..core.effect import TERMINAL, Status
from ..core.effect import Effect as EffectRecord
from ..core.errors import StoreError, SurefootError, UsageError
from ..core.ids import derive_key
from ..core.journal import Branch
from ..core.outcome import InDoubt
from ..core.perform import Settled, perform, settled_of
from ..core.policy import delay_seconds
from ..core.writes import RecordEffect
from ..effects.effect import Effect
from ..effects.effect import _effects as effects  # pyright: ignore[reportPrivateUsage]
from ..effects.use import EffectUse
from ..runtime.engine import Engine
from ..runtime.outside import outside_session
from .row import Row, State

if TYPE_CHECKING:
    from .eventloop import EventLoop

T = TypeVar("T")
HELD_SECONDS = 1.0
"""How long to leave an effect alone that another process works on."""
PARKED_SECONDS = 5.0
"""How often to look whether a person has decided."""
STUCK_SECONDS = 60.0
"""How often to look whether the code fits now."""
REASON_CHARACTERS_MAX = 2000


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one look at a row; an open one is looked at again after `again_seconds`."""

    state: State
    key: str
    reason: str = ""
    receipt: str | None = None
    again_seconds: float = 0.0


class Later(msgspec.Struct, frozen=True):
    """The flow would have waited so long."""

    seconds: float


def unless_waiting(flow: Flow[T]) -> Flow[T | Later]:
    """The flow, ended where it would wait; what it has recorded stays, and the next one goes on there."""
    resume: Callable[[Any], Any] = flow.send
    value: Any = None
    while True:
        try:
            command = resume(value)
        except StopIteration as stop:
            return stop.value
        if isinstance(command, Sleep):
            flow.close()
            return Later(command.seconds)
        try:
            value = yield command
            resume = flow.send
        except GeneratorExit:
            flow.close()
            raise
        except BaseException as error:
            value, resume = error, flow.throw


def identity_of(row: Row, database: str) -> str:
    """What the row's effect is claimed under: its business key, else database and row."""
    return row.identity or f"outbox:{database}:{row.id}"


def deliver_row(engine: Engine, database: str, row: Row, *, budget: timedelta | None, loop: EventLoop) -> Outcome:
    """Perform the row's effect, or find what became of it. Never raises: what went wrong is part of the outcome."""
    try:
        return _deliver(engine, database, row, budget, loop)
    except StoreError as error:
        return _again(row, State.WAITING, error, delay_seconds(row.tries + 1))
    except SurefootError as error:
        return _again(row, State.STUCK, error, STUCK_SECONDS)
    except BaseException as error:  # on a thread of ours: whatever a body raised, the other rows go on
        return _again(row, State.WAITING, error, delay_seconds(row.tries + 1))


def _again(row: Row, state: State, error: BaseException, seconds: float) -> Outcome:
    reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
    return Outcome(state=state, key=row.effect_key, reason=reason, again_seconds=seconds)


def _deliver(engine: Engine, database: str, row: Row, budget: timedelta | None, loop: EventLoop) -> Outcome:
    identity = identity_of(row, database)
    key, content = derive_key(engine.namespace, identity), row.arguments.encode()
    held = engine.store.read_effect(key)
    _refuse_other_store(row, key, held)
    is_ended = held is not None and held.status in TERMINAL
    if held is not None and is_ended and (held.name, held.request_digest) == (row.effect, digest(content)):
        return _settled(row, held, _stored(engine, held))  # only the mark was missing
    code = _code_of(row.effect)
    if not is_ended:
        code.arguments.restore(content)  # UsageError where the code no longer fits, before anything is recorded
    use = EffectUse(code, Branch(f"outbox:{row.id}"), content, identity, None)
    if budget is not None:
        use.budget_seconds = budget.total_seconds()
    session = outside_session(code.name, engine)
    flow = unless_waiting(perform(session.state, use))
    found = loop.run(session.drive_async(flow)) if code.is_async else session.drive(flow)
    if isinstance(found, Later):
        return _let_go(engine, key, found)
    record, settled = found
    assert record is not None  # outside a run there is no journal to return it from
    return _settled(row, record, settled)


def _refuse_other_store(row: Row, key: str, held: EffectRecord | None) -> None:
    """A row whose effect was recorded once is never begun anew in a store that does not know it."""
    if row.effect_key and (held is None or row.effect_key != key):
        raise UsageError(
            f"this row's effect {row.effect_key[:12]} was recorded in another Surefoot store or namespace, and is not "
            "in this one: it may have happened. Deliver with that store; or, if it certainly did not happen, "
            "outbox.retry(connection, id) begins it anew"
        )


def _code_of(name: str) -> Effect[..., Any]:
    """The effect's code, by its name or a former one; UsageError when this process does not know it."""
    known = effects.get(name) or next((e for e in effects.values() if e is not None and name in e.names), None)
    if known is None:
        twice = "two functions here have that name" if name in effects else "no effect has that name here"
        raise UsageError(
            f"effect {name!r} cannot be delivered by this process: {twice}. Import the module that defines it before "
            "delivering, or name the effect that it has become with formerly="
        )
    return known


def _stored(engine: Engine, held: EffectRecord) -> Settled:
    receipt = held.receipt
    return settled_of(held, engine.store.read_blob(receipt[1:]) if receipt[:1] == BLOB_MARK else receipt)


def _let_go(engine: Engine, key: str, later: Later) -> Outcome:
    """Nobody holds an effect that waits, so that any deliverer may go on with it."""
    held = engine.store.read_effect(key)
    if held is None or key in engine.working or held.owner not in (0, engine.owner):
        return Outcome(state=State.WAITING, key=key, reason="somebody else works on it", again_seconds=HELD_SECONDS)
    if held.owner and held.status in (Status.INTENDED, Status.IN_DOUBT):
        stamp = next(engine.stamps)
        write = RecordEffect(key=key, effect_fence=held.fence, run_fence=0, event=None, release=True, stamp=stamp)
        engine.committer.commit(write)
    reason = f"{held.status}: {held.reason}"[:REASON_CHARACTERS_MAX]
    return Outcome(state=State.WAITING, key=key, reason=reason, again_seconds=later.seconds)


def _settled(row: Row, record: EffectRecord, settled: Settled) -> Outcome:
    reason = settled.reason
    asked = f"outbox:{row.id}/"
    if not record.slot.startswith(asked):
        whose = f"run {record.run!r}" if record.run else f"{record.slot!r}"
        reason = f"the same effect was asked for by {whose} under identity {record.identity!r}; it is one effect" + (
            f". {reason}" if reason else ""
        )
    reason = reason[:REASON_CHARACTERS_MAX]
    match settled.status:
        case Status.CONFIRMED | Status.COMPENSATED:
            receipt = bytes(settled.receipt).decode()
            return Outcome(state=State.DELIVERED, key=settled.key, reason=reason, receipt=receipt)
        case Status.REFUSED:
            return Outcome(state=State.REFUSED, key=settled.key, reason=reason)
        case Status.ABANDONED:
            return Outcome(state=State.ABANDONED, key=settled.key, reason=reason)
        case _:
            doubt = InDoubt(effect=settled.key, name=record.name, run="", reason=reason)
            told = f"{reason}. Decide: {doubt.how()}"
            return Outcome(state=State.PARKED, key=settled.key, reason=told, again_seconds=PARKED_SECONDS)
