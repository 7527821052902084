"""One event loop on a thread of its own, for effects that are `async def`.

All of a deliverer's async bodies run on the same loop, so that a client that they share works; the loop starts with the
first of them, and asyncio is imported only then.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")


class EventLoop:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run it on the loop's thread and wait for its result."""
        import asyncio

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="surefoot-outbox-loop", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Stop the loop, once nobody waits for it."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
