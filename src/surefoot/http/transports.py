"""Transports and clients for httpx and httpx2 that keep model calls in the run's journal, from one code."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Awaitable, Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

from ..core.errors import UsageError
from ..runtime import calls
from ..runtime.scope import current
from .exchange import Begin, Library, Read, Record, Send, Todo, asked_by, exchange, inside, may_be_one, where
from .settings import Settings, settings_of
from .streams import streams_of

NAMES = ("httpx2", "httpx")


def library_of(library: ModuleType | str | None) -> Library:
    """httpx or httpx2, as named; the newer one that is installed when nothing is said."""
    if library is None:
        library = next((name for name in NAMES if importlib.util.find_spec(name) is not None), "")
    name = library if isinstance(library, str) else library.__name__
    if name not in NAMES:
        raise UsageError(
            f"library= takes the module httpx or httpx2, found {library!r}; `pip install 'surefoot[http]'` brings one"
        )
    return _library(name)


@lru_cache
def _library(name: str) -> Library:
    module = importlib.import_module(name)
    return Library(module, streams_of(module))


def exchange_sync(library: Library, settings: Settings, send: Callable[[Any], Any], request: Any) -> Any:
    """Send a request of a `def` client with `send`, or answer it from the journal."""
    if not may_be_one(request, settings):
        return send(request)
    asked = asked_by(request, request.read(), settings)
    place = None if asked is None else where(asked, settings)
    if asked is None or place is None:
        return send(request)
    steps = exchange(library, place, asked, settings, request)
    resume: Callable[[Any], Todo] = steps.send
    value: Any = None
    while True:
        try:
            todo = resume(value)
        except StopIteration as stop:
            return stop.value
        try:
            match todo:
                case Begin():
                    value = calls.begin(
                        place,
                        kind=asked.api,
                        name=asked.model,
                        fingerprint=asked.fingerprint,
                        preview=asked.preview,
                        tries=True,
                    )
                case Send():
                    value = _in_body(place, lambda: send(request))
                case Read(response):
                    value = _in_body(place, response.read)
                case Record(slot, record):
                    value = slot.commit(**record)
            resume = steps.send
        except BaseException as error:
            value, resume = error, steps.throw


def _in_body(place: calls.Place, work: Callable[[], Any]) -> Any:
    token, was_inside = current.set(place.session.step_scope), inside.set(True)
    try:
        return work()
    finally:
        inside.reset(was_inside)
        current.reset(token)


async def exchange_async(
    library: Library, settings: Settings, send: Callable[[Any], Awaitable[Any]], request: Any
) -> Any:
    """Send a request of an `async def` client with `send`, or answer it from the journal."""
    if not may_be_one(request, settings):
        return await send(request)
    asked = asked_by(request, await request.aread(), settings)
    place = None if asked is None else where(asked, settings)
    if asked is None or place is None:
        return await send(request)
    steps = exchange(library, place, asked, settings, request)
    resume: Callable[[Any], Todo] = steps.send
    value: Any = None
    while True:
        try:
            todo = resume(value)
        except StopIteration as stop:
            return stop.value
        try:
            match todo:
                case Begin():
                    value = await calls.begin_async(
                        place,
                        kind=asked.api,
                        name=asked.model,
                        fingerprint=asked.fingerprint,
                        preview=asked.preview,
                        tries=True,
                    )
                case Send():
                    value = await _in_body_async(place, send(request))
                case Read(response):
                    value = await _in_body_async(place, response.aread())
                case Record(slot, record):
                    value = await slot.commit_async(**record)
            resume = steps.send
        except BaseException as error:
            value, resume = error, steps.throw


async def _in_body_async(place: calls.Place, work: Awaitable[Any]) -> Any:
    token, was_inside = current.set(place.session.step_scope), inside.set(True)
    try:
        return await work
    finally:
        inside.reset(was_inside)
        current.reset(token)


@lru_cache
def _classes(name: str) -> tuple[Any, Any]:
    """(transport, async transport) of one library."""
    library = _library(name)
    sync_base, async_base = library.module.BaseTransport, library.module.AsyncBaseTransport

    class JournalTransport(sync_base):
        """Keeps model calls in the journal; all else goes to `inner`."""

        def __init__(self, inner: Any, settings: Settings) -> None:
            self.inner, self._settings = inner, settings

        def handle_request(self, request: Any) -> Any:
            return exchange_sync(library, self._settings, self.inner.handle_request, request)

        def close(self) -> None:
            self.inner.close()

    class AsyncJournalTransport(async_base):
        """The same for async clients."""

        def __init__(self, inner: Any, settings: Settings) -> None:
            self.inner, self._settings = inner, settings

        async def handle_async_request(self, request: Any) -> Any:
            return await exchange_async(library, self._settings, self.inner.handle_async_request, request)

        async def aclose(self) -> None:
            await self.inner.aclose()

    return JournalTransport, AsyncJournalTransport


def transport(inner: Any = None, *, library: ModuleType | str | None = None, **settings: Any) -> Any:
    """A transport for `httpx.Client` or `httpx2.Client` (`library=`) that keeps model calls in the run's journal.

    What it does not find there, and all that is no model call, goes to `inner`: an HTTPTransport unless given.
    Settings as for `install`.
    """
    held = library_of(library)
    made = settings_of(**settings)
    return _classes(held.name)[0](held.module.HTTPTransport() if inner is None else inner, made)


def async_transport(inner: Any = None, *, library: ModuleType | str | None = None, **settings: Any) -> Any:
    """The same for `AsyncClient`."""
    held = library_of(library)
    made = settings_of(**settings)
    return _classes(held.name)[1](held.module.AsyncHTTPTransport() if inner is None else inner, made)


SETTINGS = ("outside", "endpoints", "prices", "is_model_call")


def client(*, library: ModuleType | str | None = None, **options: Any) -> Any:
    """An `httpx2.Client` (or `httpx.Client`) to pass as `http_client=` to an SDK: its model calls are in the journal.

    Settings as for `install`; all other options are the client's own.
    """
    own = {name: options.pop(name) for name in SETTINGS if name in options}
    made = transport(options.pop("transport", None), library=library, **own)
    options.setdefault("timeout", 600.0)
    return library_of(library).module.Client(transport=made, follow_redirects=True, **options)


def async_client(*, library: ModuleType | str | None = None, **options: Any) -> Any:
    """The same as an `AsyncClient`."""
    own = {name: options.pop(name) for name in SETTINGS if name in options}
    made = async_transport(options.pop("transport", None), library=library, **own)
    options.setdefault("timeout", 600.0)
    return library_of(library).module.AsyncClient(transport=made, follow_redirects=True, **options)
