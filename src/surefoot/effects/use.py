"""One use of an effect: how one attempt is made, how the receiver is asked, and what is recorded of either."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core.effect import Effect as EffectRecord
from ..core.effect import Evidence
from ..core.errors import Exists, Refused, Several, UsageError
from ..core.journal import Branch
from ..core.outcome import Answered
from ..core.perform import Settled
from ..runtime.scope import current
from ..runtime.session import Session
from .attempt import Attempt
from .classify import answered, classify_error, classify_response
from .guard import Stopped, Watch
from .transactional import open_transaction, perform_in_transaction

if TYPE_CHECKING:
    from .effect import Effect

T = TypeVar("T")
UNSTORABLE = "unstorable receipt: "
ENDING = (Exception, Stopped, BaseExceptionGroup)
"""How an attempt's body may end; a stopped request of a task group comes in a group."""

MISTAKES = (UsageError, TypeError, NameError, AttributeError, LookupError, AssertionError, ImportError)
"""What a body raises that is written wrongly. Whether it had sent something nobody knows, so it is in doubt as ever."""


def _tell(record: EffectRecord, mistake: BaseException) -> None:
    """In the log, since the next attempts may take a while and end alike."""
    import logging

    where = f"run {record.run!r}" if record.run else "a call outside any run"
    logging.getLogger("surefoot").warning(
        "effect %r of %s: attempt %d ended with %s: %s. It is in doubt, and settled by contract (%s); mend the body",
        record.name,
        where,
        record.attempts,
        type(mistake).__name__,
        str(mistake)[:500],
        record.contract.kind,
    )


def refuse_foreign(error: BaseException) -> None:
    """Raise a group that also holds what is nobody's failure, such as KeyboardInterrupt."""
    if isinstance(error, BaseExceptionGroup):
        held = cast("BaseExceptionGroup[BaseException]", error)
        if held.split((Exception, Stopped))[1] is not None:
            raise held


def _in_new_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `work` gives, in an event loop of its own; on another thread where this one has a loop."""
    import asyncio
    import contextvars
    from concurrent.futures import ThreadPoolExecutor

    from ..runtime.step import runs_loop

    if not runs_loop():
        return asyncio.run(work())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, lambda: asyncio.run(work())).result()


class EffectUse:
    """One use of an effect; what `perform` sees as its call, and how one attempt is made."""

    def __init__(
        self,
        effect: Effect[..., Any],
        branch: Branch,
        arguments: bytes,
        identity: str,
        owner: Any,
        *,
        compensates: str = "",
    ) -> None:
        """`owner` is the instance when the effect is a method."""
        self.effect, self.branch, self.names = effect, branch, effect.names
        self.arguments, self.identity, self.owner, self.compensates = arguments, identity, owner, compensates
        self.contract = effect.contract
        self.timeout_seconds, self.budget_seconds = effect.timeout_seconds, effect.budget_seconds
        self.can_ask = effect._lookup is not None  # pyright: ignore[reportPrivateUsage]
        self.scope = effect.pinned_scope()
        self.needs_approval = effect.needs_approval

    def register_undo(self, session: Session, settled: Settled) -> None:
        """Remember how to undo it when the run fails."""
        self.effect.register_undo(session, self.branch, settled)

    def _arguments(self, session: Session, record: EffectRecord, connection: Any = None) -> tuple[Any, ...]:
        request = record.request
        if request[:1] == b"\x00":
            request = session.engine.store.read_blob(request[1:])
        args, kwargs = self.effect.arguments.restore(request)
        first = (self.owner,) if self.effect.is_method else ()
        return (*first, Attempt.of(record, connection), *args), kwargs

    def _landed(self, value: Any) -> Answered:
        try:
            stored, _ = self.effect.codec.settle(value)
        except UsageError as refused:
            reading = classify_response(value, self.contract)
            if reading is not None and reading.kind != "landed":
                return answered(reading, self.effect.codec)
            return Answered(kind="landed", receipt=b"null", reason=f"{UNSTORABLE}{refused}")
        return Answered(kind="landed", receipt=stored)

    def _ended(self, record: EffectRecord, held: Watch, end: Any, *, failed: bool) -> Answered:
        """What is recorded of an attempt whose body returned or raised `end`, or had a request stopped."""
        if held.stopped is not None:
            end, failed = held.stopped, True
        if not failed:
            return self._landed(end)
        if isinstance(end, Exists) and end.receipt is not None:
            return self._landed(end.receipt)
        marks = (record.sent_key, record.key)
        answer = answered(classify_error(end, self.contract, marks, has_left=held.has_left), self.effect.codec)
        if answer.kind == "unknown" and isinstance(end, MISTAKES):
            _tell(record, end)
        return answer

    def send(self, session: Session, record: EffectRecord) -> Answered:
        """Make one attempt on this thread, with the recorded request."""
        effect = self.effect
        if effect.is_async:  # left open by an event loop that is gone, in a def workflow
            return _in_new_loop(lambda: self.send_async(session, record))
        try:
            if effect.connect is not None:
                return self._send_in_transaction(session, record, effect.connect)
            args, kwargs = self._arguments(session, record)
        except (UsageError, OSError) as error:
            return Answered(kind="unsent", reason=f"{type(error).__name__}: {error}")
        with self._watch(session, record) as held:
            try:
                value = session.in_body(lambda: effect.function(*args, **kwargs))
            except ENDING as error:
                refuse_foreign(error)
                return self._ended(record, held, error, failed=True)
            return self._ended(record, held, value, failed=False)

    def _watch(self, session: Session, record: EffectRecord) -> Watch:
        return Watch(lambda: session.engine.clock.now() > record.deadline_at)

    def _send_in_transaction(self, session: Session, record: EffectRecord, connect: Callable[[], Any]) -> Answered:
        try:
            connection = open_transaction(connect)
        except Exception as error:
            return Answered(kind="unsent", reason=f"no connection: {type(error).__name__}: {error}"[:500])
        try:
            args, kwargs = self._arguments(session, record, connection)

            def body() -> bytes:
                value = session.in_body(lambda: self.effect.function(*args, **kwargs))
                return self.effect.codec.settle(value)[0]

            receipt = perform_in_transaction(connection, record.key, record.request_digest, body)
            return Answered(kind="landed", receipt=receipt)
        except Refused as error:
            return Answered(kind="refused", reason=error.reason, code=error.code)
        except Exception as error:
            return Answered(kind="unknown", reason=f"{type(error).__name__}: {error}"[:500])
        finally:
            connection.close()

    async def send_async(self, session: Session, record: EffectRecord) -> Answered:
        """Make one attempt in this task, with the recorded request."""
        import asyncio

        try:
            args, kwargs = self._arguments(session, record)
        except (UsageError, OSError) as error:
            return Answered(kind="unsent", reason=f"{type(error).__name__}: {error}")
        token, task = current.set(session.body_scope), asyncio.current_task()
        session.sending.add(cast("asyncio.Task[Any]", task))
        with self._watch(session, record) as held:
            try:
                async with asyncio.timeout(record.timeout_seconds):
                    value = await self.effect.function(*args, **kwargs)
            except ENDING as error:
                refuse_foreign(error)
                return self._ended(record, held, error, failed=True)
            finally:
                current.reset(token)
                session.sending.discard(cast("asyncio.Task[Any]", task))
            return self._ended(record, held, value, failed=False)

    def _evidence(self, at: float, record: EffectRecord, found: str, text: str = "", value: bytes = b"") -> Evidence:
        # stamped with when it was asked: an answer may be older than its arrival
        return Evidence(at=at, kind="lookup", found=found, text=text[:500], value=value, attempt=record.attempts)

    def _asked(self, at: float, record: EffectRecord, value: Any) -> Evidence:
        if value is None:
            return self._evidence(at, record, "absent")
        try:
            stored, _ = self.effect.codec.settle(value)
        except UsageError as refused:
            return self._evidence(at, record, "error", f"the lookup's answer is not a receipt: {refused}")
        return self._evidence(at, record, "found", value=stored)

    def ask(self, session: Session, record: EffectRecord) -> Evidence:
        """Ask the receiver once, on this thread. An exception is evidence too, never an answer."""
        if self.effect.is_async:
            return _in_new_loop(lambda: self.ask_async(session, record))
        ask = cast("Callable[..., Any]", self.effect._lookup)  # pyright: ignore[reportPrivateUsage]
        at = session.engine.clock.now()
        try:
            args, kwargs = self._arguments(session, record)
            return self._asked(at, record, session.in_body(lambda: ask(*args, **kwargs)))
        except Several as error:
            return self._evidence(at, record, "several", str(error))
        except Exception as error:
            return self._evidence(at, record, "error", f"{type(error).__name__}: {error}")

    async def ask_async(self, session: Session, record: EffectRecord) -> Evidence:
        """Ask the receiver once, in this task."""
        ask = cast("Callable[..., Any]", self.effect._lookup)  # pyright: ignore[reportPrivateUsage]
        at = session.engine.clock.now()
        token = current.set(session.body_scope)
        try:
            args, kwargs = self._arguments(session, record)
            return self._asked(at, record, await ask(*args, **kwargs))
        except Several as error:
            return self._evidence(at, record, "several", str(error))
        except Exception as error:
            return self._evidence(at, record, "error", f"{type(error).__name__}: {error}")
        finally:
            current.reset(token)
