"""`install()`: every client of the process, also one that a framework makes deep inside.

The transports of httpx and httpx2 are changed in place, LiteLLM's own one too, and google-genai is kept on httpx where
it would silently change to aiohttp. Nothing is imported for it: a module that is not there is changed when it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from . import blind
from .imports import on_import
from .settings import Outside, Settings, settings_of
from .tokens import Price
from .transports import exchange_async, exchange_sync, library_of

LITELLM = "litellm.llms.custom_httpx.aiohttp_transport"
GENAI = "google.genai._api_client"
_present: list[Settings] = []


def install(
    *,
    outside: Outside = "warn",
    endpoints: Sequence[str] = (),
    prices: Mapping[str, Price] | None = None,
    is_model_call: Callable[[str], bool] | None = None,
) -> None:
    """Keep the model calls of every httpx and httpx2 client of this process in the journal of the run they belong to.

    Only calls of models are looked at: by the path and the body, on any host; `endpoints` (base URLs) and
    `is_model_call` (of a URL) name others. A call outside any run warns once, is refused (`outside="refuse"`: durable
    or not at all) or passes in silence ("plain"). `prices` by model give the calls' money; there are none but yours.
    Traffic of models that passes by other ways (botocore, gRPC, websockets, requests, aiohttp) is not recorded; in a
    run it is told with a NotRecorded warning and stands in the run's timeline. A second call changes the settings.
    """
    settings = settings_of(outside, endpoints, prices, is_model_call)
    first = not _present
    _present[:] = [settings]
    if first:
        on_import("httpx", _change_library)
        on_import("httpx2", _change_library)
        on_import(LITELLM, _change_litellm)
        on_import(GENAI, _change_genai)
        blind.watch(lambda: _present[0])


def installed() -> bool:
    """True once `install` was called in this process."""
    return bool(_present)


def _change_library(module: ModuleType) -> None:
    name = module.__name__
    _wrap(module.HTTPTransport, "handle_request", lambda own: _sync(name, own))
    _wrap(module.AsyncHTTPTransport, "handle_async_request", lambda own: _async(name, own))


def _change_litellm(module: ModuleType) -> None:
    kind = getattr(module, "LiteLLMAiohttpTransport", None)
    if kind is not None:
        _wrap(kind, "handle_async_request", lambda own: _async("httpx", own))


def _change_genai(module: ModuleType) -> None:
    kind = getattr(module, "BaseApiClient", None)
    if kind is not None and hasattr(kind, "_use_aiohttp"):
        kind._use_aiohttp = lambda self: False  # pyright: ignore[reportUnknownLambdaType]


def _wrap(kind: Any, name: str, make: Callable[[Any], Any]) -> None:
    own = kind.__dict__.get(name)
    if own is not None and not hasattr(own, "surefoot_own"):
        made = make(own)
        made.surefoot_own = own
        setattr(kind, name, made)


def _sync(name: str, own: Any) -> Any:
    def handle_request(self: Any, request: Any) -> Any:
        return exchange_sync(library_of(name), _present[0], lambda asked: own(self, asked), request)

    return handle_request


def _async(name: str, own: Any) -> Any:
    async def handle_async_request(self: Any, request: Any) -> Any:
        return await exchange_async(library_of(name), _present[0], lambda asked: own(self, asked), request)

    return handle_async_request
