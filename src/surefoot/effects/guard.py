"""One attempt is one request: a second acting request of an attempt is stopped before a byte of it leaves.

Many client libraries send a request again by themselves when its answer is lost, which is the blind resend that the
contract forbids. So the places where requests leave (`http.client`, under requests, urllib3, botocore, PyGithub and
urllib; httpcore, under httpx; aiohttp) ask here first. They are hooked once, when a first attempt begins or when they
are imported after it, and outside of an attempt they only look at one context variable. A request counts from the
moment at which its connection stands, so one that was certainly never sent may be tried again.

What stops a request is no `Exception`: a library that retries on every exception would wait and try again, for minutes.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, cast

from ..core.errors import Signal
from .clients import advice

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

ACTING = frozenset(("POST", "PUT", "PATCH", "DELETE"))

CLIENTS = {
    "github": "PyGithub",
    "stripe": "stripe",
    "slack_sdk": "slack_sdk",
    "boto3": "boto3",
    "botocore": "botocore",
    "openai": "openai",
    "anthropic": "anthropic",
    "twilio": "twilio",
    "sendgrid": "sendgrid",
    "python_http_client": "sendgrid",
    "requests": "requests",
    "httpx": "httpx",
    "httpx2": "httpx2",
    "aiohttp": "aiohttp",
    "urllib3": "urllib3",
    "urllib": "urllib",
    "http": "http.client",
    "httpcore": "httpcore",
    "httpcore2": "httpcore2",
}
"""Packages that are named when they send twice, with the names that people know them by."""


CALLED_AGAIN = (
    "Take out what calls it again below `durable(...)`: the run does that, as far as the contract of the tool allows"
)


class Stopped(Signal):
    """A request of an attempt was stopped before a byte of it left."""


class SecondRequest(Stopped):
    """A client library tried to send the same acting request twice in one attempt; the second was stopped.

    The first may have landed, so the effect is in doubt, and its contract says what happens next.
    """

    def __init__(self, method: str, host: str, path: str, library: str, way: str = "") -> None:
        """`way`: what to do about it, where that is not known from the library."""
        more = (
            "If this effect really needs several requests, make the later ones inside `with attempt.more_requests():`"
        )
        super().__init__(
            f"{library} tried to send a second {method} {host}{path} in one attempt; it was stopped before it left, "
            f"and the first may have landed. {way or f'{advice(library)}. {more}'}"
        )
        self.method, self.host, self.path, self.library = method, host, path, library


class TooLate(Stopped):
    """The attempt's deadline had passed before its request left, so it was not sent: others no longer wait for it."""


class Watch:
    """What left within one attempt, which is the block. `is_late` tells whether the attempt's deadline has passed."""

    def __init__(self, is_late: Callable[[], bool]) -> None:
        self._is_late = is_late
        self._lock = threading.Lock()
        self._sent: set[tuple[str, str, str]] = set()
        self._called: set[tuple[str, str]] = set()
        self.permitting = 0
        self.stopped: Stopped | None = None
        self._token: Token[Watch | None] | None = None

    def __enter__(self) -> Self:
        """From here on requests of this task or thread are counted."""
        install()
        self._token = watching.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        """No longer."""
        assert self._token is not None
        watching.reset(self._token)

    @property
    def has_left(self) -> bool:
        """True if an acting request was seen to leave."""
        return bool(self._sent)

    def leave(self, method: str, host: str, path: str) -> None:
        """Count a request that is about to leave, or stop it."""
        request = (method, host, path)
        with self._lock:
            if request in self._sent and not self.permitting:
                self.stopped = SecondRequest(*request, sending_library())
            elif self._is_late():
                self.stopped = self.stopped or TooLate(
                    f"{method} {host}{path} was not sent: the attempt's deadline had passed before it could leave. "
                    "What takes long belongs in a step before the effect; or give the effect a longer timeout="
                )
            else:
                self._sent.add(request)
                return
            raise self.stopped

    def call(self, server: str, tool: str) -> None:
        """Stop the second call of a tool, whatever requests are permitted: its session does not say what each is for.

        It says nothing about what has left: the session may still turn out to have no connection.
        """
        with self._lock:
            if (server, tool) in self._called:
                self.stopped = SecondRequest("tools/call", f"{server}/", tool, "the MCP client", CALLED_AGAIN)
                raise self.stopped
            self._called.add((server, tool))


watching: ContextVar[Watch | None] = ContextVar("surefoot_watch", default=None)


@contextmanager
def more_requests() -> Generator[None]:
    """Within the block the attempt may send the same request again: the body answers for it."""
    held = watching.get()
    if held is None:
        yield
        return
    held.permitting += 1
    try:
        yield
    finally:
        held.permitting -= 1


def leaving(method: str | bytes, host: str | bytes, path: str | bytes) -> None:
    """Called where a connection stands and nothing of the request has been written yet."""
    held = watching.get()
    if held is not None and (name := _text(method).upper()) in ACTING:
        held.leave(name, _text(host), _text(path).partition("?")[0])


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def sending_library() -> str:
    """The outermost client library on the stack between here and the effect's body."""
    frame, found = sys._getframe(2), "the client library"  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name == "surefoot.effects.use":
            break
        found = CLIENTS.get(name.partition(".")[0], found)
        frame = frame.f_back
    return found


# --- where requests leave ---------------------------------------------------------------------------------------------


def _hook_http_client(module: Any) -> None:
    from urllib.parse import urlsplit  # http.client has imported it

    connection = module.HTTPConnection
    putrequest, send = connection.putrequest, connection.send

    @wraps(putrequest)
    def watched_putrequest(self: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
        if watching.get() is not None:
            self._surefoot_request = (method, url)
        return putrequest(self, method, url, *args, **options)

    @wraps(send)
    def watched_send(self: Any, data: Any) -> Any:
        request = self.__dict__.pop("_surefoot_request", None)  # gone, while connect() talks to a proxy
        if request is not None:
            if self.sock is None and self.auto_open:
                self.connect()
            method, url = cast("tuple[str, str]", request)
            parts = urlsplit(str(url))
            here = (
                f"{getattr(self, '_tunnel_host', None) or self.host}:{getattr(self, '_tunnel_port', None) or self.port}"
            )
            leaving(method, parts.netloc or here, parts.path)
        return send(self, data)

    connection.putrequest, connection.send = watched_putrequest, watched_send


def _hook_httpcore(module: Any) -> None:
    """httpcore tells a request's `trace` extension of each thing that it does, before it does it."""

    def is_leaving(name: str, about: Any) -> None:
        if name.endswith(".send_request_headers.started"):
            request = about["request"]
            url = request.url
            leaving(
                request.method, b"%b:%d" % (url.host, url.port or (443 if url.scheme == b"https" else 80)), url.target
            )

    def traced(request: Any) -> None:
        told = request.extensions.get("trace")

        def trace(name: str, about: Any) -> None:
            is_leaving(name, about)
            if told is not None:
                told(name, about)

        request.extensions = {**request.extensions, "trace": trace}

    def traced_async(request: Any) -> None:
        told = request.extensions.get("trace")

        async def trace(name: str, about: Any) -> None:
            is_leaving(name, about)
            if told is not None:
                await told(name, about)

        request.extensions = {**request.extensions, "trace": trace}

    handle, handle_async = module.ConnectionPool.handle_request, module.AsyncConnectionPool.handle_async_request

    @wraps(handle)
    def handle_request(self: Any, request: Any) -> Any:
        if watching.get() is not None:
            traced(request)
        return handle(self, request)

    @wraps(handle_async)
    async def handle_async_request(self: Any, request: Any) -> Any:
        if watching.get() is not None:
            traced_async(request)
        return await handle_async(self, request)

    module.ConnectionPool.handle_request = handle_request
    module.AsyncConnectionPool.handle_async_request = handle_async_request


def _hook_aiohttp(module: Any) -> None:
    send = module.ClientRequest.send

    @wraps(send)
    async def watched_send(self: Any, conn: Any) -> Any:
        leaving(self.method, f"{self.url.host}:{self.url.port}", self.url.path)
        return await send(self, conn)

    module.ClientRequest.send = watched_send


HOOKS: dict[str, Callable[[Any], None]] = {
    "http.client": _hook_http_client,
    "httpcore": _hook_httpcore,
    "httpcore2": _hook_httpcore,
    "aiohttp.client_reqrep": _hook_aiohttp,
}
_lock = threading.Lock()
_installed = threading.Event()
_hooked: set[str] = set()


def _hook(name: str, module: ModuleType) -> None:
    with _lock:
        if name in _hooked:
            return
        _hooked.add(name)
        try:
            HOOKS[name](module)
        except AttributeError as missing:
            warnings.warn(
                f"surefoot does not know this version of {name} ({missing}): a second request within one attempt "
                "cannot be stopped there. Switch the library's own retries off, see docs/clients.md",
                RuntimeWarning,
                stacklevel=2,
            )


class _Hooking:
    """Loads a module as its own loader does, and hooks it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        _hook(module.__name__, module)


class _Finder:
    """Sees a module of HOOKS being imported after the first attempt began."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in HOOKS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = cast("Any", _Hooking(spec.loader))
                return spec
        return None


_finder = _Finder()


def install() -> None:
    """Hook what is imported already, and whatever of it is imported later. Once in a process; never undone."""
    if _installed.is_set():
        return
    with _lock:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    from importlib import import_module

    for name in HOOKS:
        if name in sys.modules:
            _hook(name, import_module(name))  # waits for another thread that is just importing it
    _installed.set()
