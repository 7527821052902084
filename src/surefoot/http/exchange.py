"""One request of a client, against the run's journal: a generator of what has to be done, for `def` and `async def`.

Errors are attempts, not results: a client's retries, one after the other, fill one slot. An attempt after which the
run went on fails again on replay, so that whatever the code did about it is done again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from ..core.errors import UsageError
from ..runtime import calls
from ..runtime.calls import Failed, Place, Recorded, Slot
from . import recorded
from .conversation import request_blobs
from .gemini import CallIds
from .recorded import Head
from .request import Asked, asked_of
from .secrets import without_secrets
from .settings import Settings, tell_once
from .sse import Events, Pieces, Recorder

if TYPE_CHECKING:
    from .streams import Streams

inside: ContextVar[bool] = ContextVar("surefoot_inside_exchange", default=False)
"""True while a transport of ours sends: one below it that is ours too steps aside."""
CLOSED = "here its reader closed the stream"
_decode = msgspec.json.Decoder().decode


class Begin(NamedTuple):
    """Look for the call in the journal; answers `Found`."""

    asked: Asked


class Send(NamedTuple):
    """Send the request; answers the client's response."""


class Read(NamedTuple):
    """Read this response to its end; answers its body, decoded."""

    response: Any


class Record(NamedTuple):
    """Record the answer of a slot."""

    slot: Slot
    record: dict[str, Any]


Todo: TypeAlias = "Begin | Send | Read | Record"


class Library:
    """One of httpx and httpx2, which have the same names and are not the same."""

    def __init__(self, module: ModuleType, streams: Streams) -> None:
        """`streams` are the byte streams of this module's kind."""
        self.name = module.__name__
        self.response: Any = module.Response
        self.transport_error: type[Exception] = module.TransportError
        self.module: Any = module
        self.streams = streams

    def again(self, answer: bytes, request: Any) -> Any:
        """The response of a recorded answer."""
        head, body = recorded.decode(answer)
        pieces = recorded.events(body) if recorded.is_stream(_content_type(head)) else [body]
        return self._made(head, head.headers, self.streams.recorded(pieces, None), request)

    def fail_again(self, answer: bytes, request: Any) -> Any:
        """The response of a failed attempt, or its exception raised; it asks the client to wait for nothing."""
        head, body = recorded.decode(answer)
        error = self._error_of(head, request) if head.error else None
        if error is not None and not head.status:
            raise error
        headers = [(name, value) for name, value in head.headers if not name.lower().startswith("retry-after")]
        if error is None:
            headers.append(("retry-after-ms", "1"))
        pieces = recorded.events(body) if recorded.is_stream(_content_type(head)) else [body]
        return self._made(head, headers, self.streams.recorded(pieces, error), request)

    def _made(self, head: Head, headers: Any, stream: Any, request: Any) -> Any:
        extensions = {"http_version": b"HTTP/1.1", "surefoot": "recorded"}
        return self.response(head.status, headers=headers, stream=stream, request=request, extensions=extensions)

    def _error_of(self, head: Head, request: Any) -> Exception:
        kind: Any = getattr(self.module, head.error, None)
        if not (isinstance(kind, type) and issubclass(kind, self.transport_error)):
            kind = self.module.ReadError
        made: Any = kind
        return made(head.text, request=request)

    def live(self, response: Any, stream: Any, request: Any) -> Any:
        """The response that its reader gets while it is recorded."""
        headers = recorded.kept(response.headers.multi_items())
        return self.response(
            response.status_code, headers=headers, stream=stream, request=request, extensions=response.extensions
        )


def _content_type(head: Head) -> str:
    return next((value for name, value in head.headers if name.lower() == "content-type"), "")


def asked_by(request: Any, body: bytes, settings: Settings) -> Asked | None:
    """What a request of either library asks of a model."""
    url = request.url
    host, path, query = url.host, url.path, url.query.decode("ascii", "replace")
    named = str(url) if settings.endpoints or settings.is_model_call is not None else ""
    headers = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in request.headers.raw}
    return asked_of(request.method, named, host, path, query, headers, body, settings.is_endpoint)


def may_be_one(request: Any, settings: Settings) -> bool:
    """False, quickly, for what is certainly no model's call; its body is left alone."""
    return request.method == "POST" and not inside.get()


def where(asked: Asked, settings: Settings) -> Place | None:
    """The place of a call, or None where it is not recorded; says so, as the settings want it."""
    here = calls.place(f"a call of model {asked.model!r}")
    if here is not None or settings.outside == "plain":
        return here
    message = (
        f"a call of model {asked.model!r} ({asked.api}) was made outside any run, so it is not recorded: after a crash "
        "it is paid for again. Make it in a workflow that Surefoot.run or a worker runs"
    )
    if settings.outside == "refuse":
        raise UsageError(f'{message}; or say outside="plain".')
    thread = threading.current_thread().name
    tell_once(f"outside:{asked.api}:{thread}", f'{message}; outside="refuse" makes this an error, "plain" silent.')
    return None


def exchange(
    library: Library, place: Place, asked: Asked, settings: Settings, request: Any
) -> Generator[Todo, Any, Any]:
    """Returns the response that the client gets."""
    found: Recorded | Failed | Slot = yield Begin(asked)
    if isinstance(found, Recorded):
        return library.again(found.answer, request)
    if isinstance(found, Failed):
        return library.fail_again(found.answer, request)
    slot = found

    def hidden(content: bytes) -> bytes:
        return without_secrets(content, str(request.url), request.headers)

    try:
        response = yield Send()
        sends_events = recorded.is_stream(response.headers.get("content-type", ""))
        if response.status_code >= 300:
            body = yield Read(response)
            slot.fail(recorded.encode(_head(response), hidden(body)))
            return library.live(response, library.streams.recorded([body], None), request)
        ids = CallIds(asked.fingerprint + slot.slot.encode()) if asked.api == "gemini.generate" else None
        if sends_events or not _is_json(response):
            recorder: Recorder = Events(ids) if sends_events else Pieces()
            stream = library.streams.recording(library, Recording(slot, asked, settings, recorder, response, hidden))
            return library.live(response, stream, request)
        body = yield Read(response)
    except BaseException as error:
        end_failed(library, slot, error, hidden)
        raise
    body = body if ids is None else ids.named(body)
    answer = recorded.encode(_head(response), body)
    content = _content(body)
    if _is_error(content):
        slot.fail(recorded.encode(_head(response), hidden(body)))
    else:
        recorder = Pieces()
        recorder.tally.see(content)
        yield Record(slot, what_is_recorded(answer, asked, settings, recorder, links_of(slot)))
    return library.live(response, library.streams.recorded([body], None), request)


def end_failed(
    library: Library,
    slot: Slot,
    error: BaseException,
    hidden: Callable[[bytes], bytes],
    head: Head | None = None,
    part: bytes = b"",
) -> None:
    """End a slot whose answer did not come: a client's error is an attempt; what stopped us leaves nothing.

    `head` and `part` are what had come of a stream.
    """
    if isinstance(error, library.transport_error):
        head = head or Head(0, [], error=type(error).__name__, text=str(error))
        head = msgspec.structs.replace(head, text=hidden(head.text.encode()).decode())
        slot.fail(recorded.encode(head, hidden(part)))
    else:
        slot.give_back()


def what_is_recorded(
    answer: bytes, asked: Asked, settings: Settings, recorder: Recorder, known: dict[tuple[str, bytes], str]
) -> dict[str, Any]:
    """The arguments of `Slot.commit`. `known` are the links that this run has recorded."""
    usage = recorder.tally.usage()
    name, blobs = request_blobs(asked, known)
    money = settings.money(asked.model, usage)
    return {"answer": answer, "usage": usage, "money": money, "request": name, "blobs": blobs}


def links_of(slot: Slot) -> dict[tuple[str, bytes], str]:
    """The links of conversations that this run has recorded, and those of its next record."""
    return calls.calls_of(slot.place.session).links


def _head(response: Any) -> Head:
    return Head(response.status_code, recorded.kept(response.headers.multi_items()))


def _is_json(response: Any) -> bool:
    return "json" in response.headers.get("content-type", "") and "ndjson" not in response.headers["content-type"]


def _content(body: bytes) -> Any:
    try:
        return _decode(body)
    except (msgspec.DecodeError, ValueError):
        return None


def _is_error(content: Any) -> bool:
    """An answer of status 200 that says it is an error, as gateways send them."""
    match content:
        case {"status": "failed"}:
            return True
        case {"error": error} if error:
            return not ({"choices", "output", "content", "candidates", "data"} & content.keys())
        case _:
            return False


class Recording:
    """A stream that is being recorded, for either driver."""

    def __init__(
        self,
        slot: Slot,
        asked: Asked,
        settings: Settings,
        recorder: Recorder,
        response: Any,
        hidden: Callable[[bytes], bytes],
    ) -> None:
        """`response` is the one that the library read from the wire; `hidden` leaves the request's credentials out."""
        self.slot, self.response, self.recorder = slot, response, recorder
        self._asked, self._settings, self._hidden = asked, settings, hidden
        self.given: list[bytes] = []
        self.over = False

    def record(self) -> dict[str, Any]:
        """What is recorded now that the answer is complete."""
        self.over = True
        answer = recorded.encode(_head(self.response), self.recorder.answer())
        return what_is_recorded(answer, self._asked, self._settings, self.recorder, links_of(self.slot))

    def ended(self, library: Library, error: BaseException | None) -> None:
        """The stream is over, by an error, or (None) because its reader closed it or it was none of an answer."""
        if self.over:
            return
        self.over = True
        if error is None:
            seen: BaseException = library.module.RemoteProtocolError(self.recorder.failed or CLOSED)
        else:
            seen = error
        head = _head(self.response)
        if error is not None or not self.recorder.failed:  # else it ended in order, with an error among its events
            head = Head(head.status, head.headers, error=type(seen).__name__, text=str(seen))
        end_failed(library, self.slot, seen, self._hidden, head, b"".join(self.given))
