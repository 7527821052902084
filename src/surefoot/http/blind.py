"""Model traffic that does not pass here: it is not recorded, so the run says so, loudly.

botocore, gRPC, websockets, requests and aiohttp are looked at where they send; what goes to a model's address from a
run warns, and leaves a line in the run's timeline. Nothing of it is changed or held up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from ..core.journal import NOTE
from ..runtime import calls
from ..runtime.scope import current
from .exchange import inside
from .imports import on_import
from .request import api_by_path, is_known
from .settings import Settings, tell_once


def watch(settings: Callable[[], Settings]) -> None:
    """Look at the other ways out of this process, as soon as their modules are imported."""

    def told(way: str, url: str) -> None:
        if is_models(url, settings()):
            tell(way, url)

    on_import("botocore.httpsession", lambda module: _botocore(module, told))
    on_import("requests.sessions", lambda module: _requests(module, told))
    on_import("aiohttp.client", lambda module: _aiohttp(module, told))
    on_import("grpc._channel", lambda module: _grpc(module, told))
    for name in ("websockets.asyncio.client", "websockets.sync.client"):
        on_import(name, lambda module: _websockets(module, told))


def is_models(url: str, settings: Settings) -> bool:
    """True if this address is one of a model, as far as it can be seen from the address."""
    parts = urlsplit(url)
    host, path = parts.hostname or "", parts.path
    if host.endswith(".amazonaws.com"):
        return host.startswith("bedrock-runtime") or is_known(host, api_by_path(path))
    if settings.is_endpoint(url):
        return True
    if parts.scheme in ("http", "https"):
        return bool(api_by_path(path)) and (is_known(host, "") or path.endswith("/chat/completions"))
    return is_known(host, "")


def tell(way: str, url: str) -> None:
    """Warn, and note it in the run. Nothing is said outside runs, below a transport of ours, and in bodies, whose end
    is recorded.
    """
    here = current.get()
    if inside.get() or here is None or here.branch is None or not here.session.state.run_id:
        return
    session = here.session
    parts = urlsplit(url)
    where = f"{parts.hostname}{parts.path}"
    key = (way, where)
    noted = calls.calls_of(session).noted
    if key in noted:
        return
    noted.add(key)
    text = f"a model at {where} was called through {way}, which nothing records"
    session.note(text)
    tell_once(
        f"{way}:{where}",
        f"run {session.state.run_id!r}: {text}: after a crash the call is made and paid for again, and its answer may "
        f"differ. Use a client on httpx, make the call in a step, or put `surefoot proxy` in between ({NOTE} in the "
        "run's timeline).",
    )


def _looked_at(kind: Any, name: str, see: Callable[..., None]) -> None:
    own = getattr(kind, name, None)
    if own is None or hasattr(own, "surefoot_own"):
        return

    @wraps(own)
    def sends(*args: Any, **kwargs: Any) -> Any:
        see(*args, **kwargs)
        return own(*args, **kwargs)

    sends.surefoot_own = own  # pyright: ignore[reportAttributeAccessIssue]
    setattr(kind, name, sends)


def _botocore(module: ModuleType, told: Callable[[str, str], None]) -> None:
    def see(self: Any, request: Any, *_: Any, **__: Any) -> None:
        told("botocore", str(getattr(request, "url", "")))

    _looked_at(module.URLLib3Session, "send", see)


def _requests(module: ModuleType, told: Callable[[str, str], None]) -> None:
    def see(self: Any, request: Any, *_: Any, **__: Any) -> None:
        told("requests", str(getattr(request, "url", "")))

    _looked_at(module.Session, "send", see)


def _aiohttp(module: ModuleType, told: Callable[[str, str], None]) -> None:
    def see(self: Any, method: Any = "", url: Any = "", *_: Any, **__: Any) -> None:
        built: Any = getattr(self, "_build_url", str)
        told("aiohttp", str(built(url)))

    _looked_at(module.ClientSession, "_request", see)


def _grpc(module: ModuleType, told: Callable[[str, str], None]) -> None:
    def see(self: Any, target: Any = "", *_: Any, **__: Any) -> None:
        name = target.decode() if isinstance(target, bytes) else str(target)
        told("gRPC", f"grpc://{name.rpartition('///')[2]}")

    _looked_at(module.Channel, "__init__", see)


def _websockets(module: ModuleType, told: Callable[[str, str], None]) -> None:
    def see(*args: Any, **kwargs: Any) -> None:
        uri = kwargs.get("uri") or next((arg for arg in args if isinstance(arg, str)), "")
        told("websockets", str(uri))

    if isinstance(module.connect, type):
        _looked_at(module.connect, "__init__", see)
    else:
        _looked_at(module, "connect", see)
