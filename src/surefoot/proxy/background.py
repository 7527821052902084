"""A proxy on a thread of its own, for a program that goes on doing something else, such as watching an agent."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from ..runtime.app import Surefoot
from .options import Options
from .runs import HeldRun
from .server import Proxy, describe
from .serving import opened, server_of


class Background:
    """Serves from `start` to `stop`; use as `with`."""

    def __init__(self, open_store: Callable[[], Surefoot], options: Options, listener: socket.socket) -> None:
        """`open_store` is called on the thread; the store is closed there too."""
        self._open_store, self._options, self._listener = open_store, options, listener
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._work, name="surefoot-proxy", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None
        self._proxy: Proxy | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        """Requests are answered when it returns; raises what kept the store or the proxy from opening."""
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        """Calls under way are recorded; the runs that were not ended are given back."""
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join()

    def end(self, run_id: str) -> dict[str, Any]:
        """End a run, and say what it was."""
        assert self._loop is not None and self._proxy is not None
        held: HeldRun = asyncio.run_coroutine_threadsafe(self._proxy.runs.end(run_id), self._loop).result()
        return describe(held)

    def _work(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._open_store() as sf, opened(sf, self._options) as proxy:
            self._proxy, self._server = proxy, server_of(proxy)
            self._loop.call_soon(self._ready.set)
            await self._server.serve(sockets=[self._listener])
