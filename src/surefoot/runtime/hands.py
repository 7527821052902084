"""The hands of a worker: threads for `def` workflows, one event loop for `async def` ones.

Threads are made when they are needed and stay; all are daemons, so that a second Ctrl-C ends the process although a
step is still running. A run that waits has been given back, so that hands are only ever busy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class Threads:
    """As many threads as have ever been busy at the same time."""

    def __init__(self) -> None:
        """None yet."""
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0
        self._count = 0

    def do(self, work: Callable[[], None]) -> None:
        """Call it on a free thread, or on a new one; it must not raise."""
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"surefoot-worker-{self._count}", daemon=True).start()
        self._work.put(work)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # nothing of a run that has ended is kept by a thread that waits
            with self._lock:
                self._free += 1

    def close(self) -> None:
        """Let the threads end when they have nothing to do."""
        for _ in range(self._count):
            self._work.put(None)


class Loop:
    """An event loop: the caller's, or one on a thread of its own, made at first use."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """`loop`: where coroutines run, if it is not to be a loop of ours."""
        self._loop, self._is_ours = loop, loop is None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine that `work` makes, in a task."""
        loop = self._loop or self._start()
        loop.call_soon_threadsafe(self._begin, loop, work)

    def _begin(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _start(self) -> asyncio.AbstractEventLoop:
        import asyncio

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="surefoot-loop", daemon=True)
        self._thread.start()
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        while not self._closed:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # raised in some task of a workflow's, and that task alone ends by it
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    def close(self) -> None:
        """End the loop of ours, once its runs have ended."""
        if self._loop is None or not self._is_ours or self._closed:
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not None:
            self._thread.join(5.0)
