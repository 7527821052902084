"""Brings a proxy up and down: the store, the client, the listening socket, the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncGenerator
from typing import Any, cast

from ..core.errors import UsageError
from ..credentials.sealing import Keys, keys_from_environment
from ..runtime.app import Surefoot
from .flight import Cut
from .options import Options
from .runs import Runs
from .server import Proxy
from .tokens import Tokens

CONNECT_SECONDS, GRACE_SECONDS, BACKLOG = 10.0, 30, 256


def listen(options: Options) -> socket.socket:
    """The listening socket; UsageError with what to do where it cannot be had."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {options.host}:{options.port} ({error.strerror}); is a proxy running there already? "
            "Choose another with --port, or 0 for any that is free"
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL that agents reach this socket by."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.asynccontextmanager
async def opened(sf: Surefoot, options: Options) -> AsyncGenerator[Proxy]:
    """A proxy over a store; when it closes, calls under way are recorded first. The caller closes the store."""
    import httpx

    keys = Keys(keys_from_environment) if options.tokens else None
    if keys is not None:
        keys.at_hand()  # a missing key is said now, and not when a token is used up
    timeout = httpx.Timeout(options.upstream_seconds, connect=CONNECT_SECONDS)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False) as client:
        proxy = Proxy(options, Runs(sf, skips=options.skips), Tokens(options.tokens, sf.engine, keys, client), client)
        try:
            yield proxy
        finally:
            await proxy.tokens.close(GRACE_SECONDS)
            await proxy.forwarder.close(GRACE_SECONDS)


class Quiet(logging.Filter):
    """An answer that broke off at the service breaks off here too; the server need not print how."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for what is meant."""
        return not (record.exc_info and isinstance(record.exc_info[1], Cut))


def server_of(proxy: Proxy) -> Any:
    """The server, not started yet; `should_exit` ends it."""
    import uvicorn

    logging.getLogger("uvicorn.error").addFilter(Quiet())
    config = uvicorn.Config(
        proxy.app,
        interface="asgi3",
        http="h11",
        ws="none",
        proxy_headers=False,  # a header must not say who is at the other end
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    # its own way ends the process by the signal, before calls under way are recorded and runs are given back
    cast("Any", server).capture_signals = contextlib.nullcontext
    return server


async def serve(sf: Surefoot, options: Options, listener: socket.socket, started: Any = None) -> None:
    """Serve until SIGTERM or Ctrl-C; `started` is called when requests are answered."""
    async with sf, opened(sf, options) as proxy:
        server = server_of(proxy)

        def stop() -> None:
            server.force_exit = server.should_exit  # the second signal does not wait for whoever is connected
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        if started is not None:
            asyncio.get_running_loop().call_soon(started)
        await server.serve(sockets=[listener])
