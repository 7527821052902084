"""The handlers of the async driver. Imported only when a workflow is `async def`, since asyncio takes long to load.

A commit cannot be cancelled: the task waits for its outcome and is cancelled right after it, so a cancellation never
loses or doubles an entry.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..core.commands import (
    AskReceiver,
    Command,
    Commit,
    Execute,
    Look,
    Now,
    ReadBlob,
    ReadEffect,
    ReadRun,
    Record,
    RenewLease,
    SendEffect,
    Sleep,
    Time,
)
from ..core.flows import check
from ..core.outcome import Answered
from ..core.writes import Answer, Write
from .committer import Pending
from .session import AsyncHandler, Session


class CommitFuture(asyncio.Future[Answer]):
    """Cannot be cancelled: cancellation of the waiting task is delivered when the commit is done."""

    def cancel(self, msg: Any | None = None) -> bool:
        """Refuse; the task remembers the request."""
        return False

    def settle(self, pending: Pending) -> None:
        """Called on the loop when the write is done."""
        if self.done():
            return
        if pending.error is not None:
            self.set_exception(pending.error)
        else:
            self.set_result(pending.answer)  # pyright: ignore[reportArgumentType]


def commit_future(session: Session, write: Write) -> CommitFuture:
    """Queue a write; the future is done when it is on disk, or has failed."""
    loop = asyncio.get_running_loop()
    future = CommitFuture(loop=loop)
    session.engine.committer.submit(Pending(write, loop=loop, callback=future.settle))
    return future


async def _commit(session: Session, command: Commit) -> Answer:
    return await commit_future(session, session.prepare(command.write))


async def _record(session: Session, command: Record) -> None:
    write = session.appending(command)
    if session.pipelined or not command.wait:
        session.pipeline(write)
    else:
        check(await commit_future(session, write))


async def _renew(session: Session, command: RenewLease) -> None:
    session.engine.join()
    if (write := session.engine.renew_for(command.until)) is not None:
        await commit_future(session, write)
        session.engine.acknowledge(write)


async def _send(session: Session, command: SendEffect) -> Answered:
    late = session.may_begin(command)
    return late if late is not None else await command.call.send_async(session, command.effect)


async def _now(session: Session, command: Now) -> float:
    return session.engine.clock.now()


async def _time(session: Session, command: Time) -> float:
    return session.engine.time()


async def _look(session: Session, command: Look) -> Any:
    return session.engine.look(command.suspect)


async def _execute(session: Session, command: Execute) -> Any:
    return await command.call.run_async(session, command.attempt)


async def _ask(session: Session, command: AskReceiver) -> Any:
    return await command.call.ask_async(session, command.effect)


async def _sleep(session: Session, command: Sleep) -> None:
    await session.engine.clock.sleep_async(command.seconds)
    session.check_stop()


async def _read_run(session: Session, command: ReadRun) -> Any:
    return session.engine.store.read_run(command.run_id)


async def _read_effect(session: Session, command: ReadEffect) -> Any:
    return session.engine.store.read_effect(command.key)


async def _read_blob(session: Session, command: ReadBlob) -> bytes:
    return session.engine.store.read_blob(command.hash)


ASYNC_HANDLERS: dict[type[Command[Any]], AsyncHandler] = {
    Now: _now,
    Time: _time,
    Look: _look,
    Commit: _commit,
    Record: _record,
    Execute: _execute,
    SendEffect: _send,
    AskReceiver: _ask,
    Sleep: _sleep,
    RenewLease: _renew,
    ReadRun: _read_run,
    ReadEffect: _read_effect,
    ReadBlob: _read_blob,
}
