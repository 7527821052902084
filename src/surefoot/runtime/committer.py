"""Group commit: whoever waits shares one fsync with everyone else who is waiting.

Leader and followers: a caller that finds nobody committing commits on its own thread, everything that is queued
included; the others wait and are woken with their answer, or to lead. So a lone caller never hands over to a thread.
Writes of asyncio tasks are led by one writer thread and answered with one wake-up a batch.

Order is kept: a write is in an earlier batch than, or in the same batch as, every write queued after it. That is R2's
barrier: when an intent is durable, so is every earlier entry of its run.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ..core.errors import CommitUnknown, ForkedStore, NotCommitted
from ..core.writes import Answer, Write
from ..stores.base import Store

if TYPE_CHECKING:
    import asyncio

BATCH_MAX = 1024
UNKNOWN_TRIES = 3


class Pending:
    """A write on its way; exactly one of `answer` and `error` is set when it is done."""

    __slots__ = ("answer", "callback", "done", "error", "loop", "waiter", "write")

    def __init__(
        self,
        write: Write,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        callback: Callable[[Pending], None] | None = None,
    ) -> None:
        """`callback` is called when it is done: on `loop` if there is one, else on the committing thread."""
        self.write = write
        self.loop, self.callback = loop, callback
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.done = False
        self.waiter: threading.Lock | None = None

    def result(self) -> Answer:
        """The answer, or raise what went wrong."""
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer

    def wake(self) -> None:
        """Let the waiting thread look again."""
        waiter = self.waiter
        if waiter is not None and waiter.locked():
            try:
                waiter.release()
            except RuntimeError:
                return  # somebody else woke it just now


class Committer:
    """Queues writes for one store and commits them in groups."""

    def __init__(self, store: Store) -> None:
        """No thread is started until an asyncio task or a pipelined run needs one."""
        self._store = store
        self._queue: deque[Pending] = deque()
        self._lead = threading.Lock()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._awake = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self._pid = os.getpid()
        self._poisoned: dict[str, int] = {}
        self._kicked: set[asyncio.AbstractEventLoop] = set()

    # --- callers ----------------------------------------------------------------------------------------------------

    def commit(self, write: Write) -> Answer:
        """Commit on this thread, or wait for the thread that does; durable when it returns."""
        self.check_process()
        if not self._queue and self._lead.acquire(blocking=False):
            try:
                if not self._queue and not self._poisoned:
                    return self._commit_alone(write)
            finally:
                self._lead.release()
                self._pass_on()
        pending = Pending(write)
        self._queue.append(pending)
        while not pending.done:
            if self._lead.acquire(blocking=False):
                try:
                    self._commit_queued()
                finally:
                    self._lead.release()
                self._pass_on()
                continue
            self._wait(pending)
        return pending.result()

    def commit_all(self, writes: Sequence[Write]) -> list[Answer]:
        """Commit all of them, in order and in as few commits as possible, and return their answers."""
        self.check_process()
        if not writes:
            return []
        pending = [Pending(write) for write in writes[:-1]]
        self._queue.extend(pending)
        last = self.commit(writes[-1])
        return [*(p.result() for p in pending), last]

    def _wait(self, pending: Pending) -> None:
        waiter = pending.waiter
        if waiter is None:
            # made first, and only then looked again: whoever leads from now on sees it and wakes it
            waiter = pending.waiter = threading.Lock()
            waiter.acquire()
            return
        waiter.acquire(timeout=1.0)

    def submit(self, pending: Pending) -> None:
        """Queue a write and return at once; its callback tells. Order with this thread's other writes is kept.

        The caller has looked for a fork already, when it entered its step or was asked to run.
        """
        self._queue.append(pending)
        loop = pending.loop
        if self._closed:
            self._refuse_queued()
        elif loop is None:
            self._rouse()
        elif loop not in self._kicked:
            self._kicked.add(loop)
            loop.call_soon(self._kick, loop)

    def check_process(self) -> None:
        """Raises ForkedStore in a forked child, where the thread that holds a lock may not exist."""
        if os.getpid() != self._pid:
            raise ForkedStore(self._pid, os.getpid())

    def enqueue(self, pending: Pending) -> None:
        """Queue a write that the caller's next write will take along."""
        self._queue.append(pending)

    def _kick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._kicked.discard(loop)
        self._rouse()

    def flush(self) -> None:
        """Return when everything queued so far has been committed or has failed."""
        self.check_process()
        while self._queue or self._lead.locked():
            with self._lead:
                self._commit_queued()

    def forgive(self, run_id: str) -> None:
        """Accept this run's writes again after it was claimed anew."""
        self._poisoned.pop(run_id, None)

    def close(self) -> None:
        """Commit what is queued and end the writer thread; a forked child leaves both alone."""
        if os.getpid() != self._pid:
            return
        self.flush()
        self._closed = True
        if self._thread is not None:
            self._wake.put(None)
            self._thread.join()
            self._thread = None
        self._refuse_queued()

    # --- the writer thread ------------------------------------------------------------------------------------------

    def _rouse(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="surefoot-writer", daemon=True)
            self._thread.start()
        if not self._awake:
            self._awake = True
            self._wake.put(None)

    def _serve(self) -> None:
        while not self._closed:
            self._wake.get()
            self._awake = False
            # one batch a wake-up: what arrives meanwhile brings a wake-up of its own, at the end of its loop's turn,
            # so that a turn's writes stay together and this thread does not compete with the loop for half of them
            with self._lead:
                self._commit_queued()
            if len(self._queue) >= BATCH_MAX:
                self._rouse()
            self._pass_on()

    def _pass_on(self) -> None:
        """After leading: somebody who still waits has to lead next."""
        if not self._queue:
            return
        try:
            pending = self._queue[0]
        except IndexError:
            return  # another thread has just taken it
        if pending.loop is None and pending.callback is None:
            pending.wake()
        elif pending.loop is None:
            self._rouse()

    # --- committing, under the lead ---------------------------------------------------------------------------------

    def _commit_alone(self, write: Write) -> Answer:
        """The most frequent batch of all, of a thread that finds nobody else here; without what a queue needs."""
        answers, interrupt = self._transact((write,))
        if interrupt is not None:
            raise interrupt
        if isinstance(answers, Exception):
            raise answers
        return answers[0]

    def _commit_queued(self) -> None:
        queue = self._queue
        batch: list[Pending] = []
        while queue and len(batch) < BATCH_MAX:
            batch.append(queue.popleft())
        if not batch:
            return
        good = self._refuse_poisoned(batch) if self._poisoned else batch
        interrupt: BaseException | None = None
        if good:
            answers, interrupt = self._transact([pending.write for pending in good])
            if isinstance(answers, Exception):
                for pending in good:
                    pending.error = answers
            else:
                for pending, answer in zip(good, answers, strict=True):
                    pending.answer = answer
        self._deliver(batch)
        if interrupt is not None:
            raise interrupt

    def _refuse_poisoned(self, batch: list[Pending]) -> list[Pending]:
        good: list[Pending] = []
        for pending in batch:
            if pending.write.run_id in self._poisoned:
                pending.error = NotCommitted(
                    f"an earlier write of run {pending.write.run_id!r} failed, so nothing after it may be recorded"
                )
            else:
                good.append(pending)
        return good

    def _transact(self, writes: Sequence[Write]) -> tuple[list[Answer] | Exception, BaseException | None]:
        """Commit; an unknown outcome is read again, then decided, before anything else happens (R10).

        An interrupt that arrives meanwhile is given back, to be raised when everybody has an answer.
        """
        interrupt: BaseException | None = None
        unknown = 0
        again = False
        while True:
            try:
                return self._store.transact(writes, again=again), interrupt
            except (KeyboardInterrupt, SystemExit) as error:
                interrupt, again = error, True
            except CommitUnknown as error:
                if isinstance(error.__cause__, KeyboardInterrupt | SystemExit):
                    interrupt = error.__cause__
                unknown, again = unknown + 1, True
                if unknown == UNKNOWN_TRIES:
                    self._poison(writes)
                    return error, interrupt
            except Exception as error:
                self._poison(writes)
                return error, interrupt

    def _poison(self, writes: Sequence[Write]) -> None:
        """Nobody may record anything behind a write that is not there."""
        self._poisoned.update({write.run_id: 1 for write in writes if write.run_id})

    def _refuse_queued(self) -> None:
        """After the end: a task that outlives its Surefoot gets an error, and does not wait for ever."""
        with self._lead:
            batch = [self._queue.popleft() for _ in range(len(self._queue))]
            self._poison([pending.write for pending in batch])
            for pending in batch:
                pending.error = NotCommitted("it was not recorded: its Surefoot is closed")
            self._deliver(batch)

    def _deliver(self, batch: list[Pending]) -> None:
        by_loop: dict[Any, list[Pending]] = {}
        for pending in batch:
            pending.done = True
            if pending.loop is not None:
                by_loop.setdefault(pending.loop, []).append(pending)
            elif pending.callback is not None:
                pending.callback(pending)
            elif pending.waiter is not None:
                pending.wake()
        for loop, theirs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_call_back, theirs)
            except RuntimeError:
                continue  # that loop is closed: nobody waits there any more


def _call_back(batch: list[Pending]) -> None:
    for pending in batch:
        assert pending.callback is not None
        pending.callback(pending)
