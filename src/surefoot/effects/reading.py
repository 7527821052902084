"""What an answer says, whichever client library brought it: status, headers, body and the codes in it.

Libraries are told apart by the names of their attributes, so that none has to be imported. Nothing is read from the
network here, since an answer that is still on its way may never end: an unread body says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, cast

import msgspec

from ..core.errors import SurefootError

ERROR_PLACES = (
    "error.code",
    "error.type",
    "error.status",
    "error.errors.*.reason",
    "error",
    "errors.*.code",
    "errors.*.extensions.code",
    "errors.*.type",
    "data.*.userErrors.*.code",
    "Error.Code",
)
"""Where services put the code of an error. A success that holds one there is not taken for a success."""

PLACES = (*ERROR_PLACES, "code", "type", "name", "status", "errorCode", "error_code", "__type", "details.*.reason")
"""The usual places in the body of an error: here a plain field is a code too."""

CODE_HEADERS = ("x-ms-error-code", "x-amzn-errortype", "repeatability-result")
ECHOES = frozenset(("input", "parameters", "params", "received", "request", "submitted"))
"""Fields in which an error repeats what was asked for, whoever owns the thing that exists."""
REPLAY_HEADERS = ("idempotent-replayed", "idempotency-replayed", "x-idempotent-replayed", "x-idempotency-replayed")


class Says(StrEnum):
    """What one answer, or the lack of one, says about the effect."""

    NOT_SENT = "not_sent"
    REFUSED = "refused"
    IN_FLIGHT = "in_flight"
    LANDED = "landed"
    EXISTS = "exists"
    CHANGED_PAYLOAD = "changed_payload"
    SPENT = "spent"
    EXPIRED = "expired"
    NOT_PROCESSED = "not_processed"
    IN_DOUBT = "in_doubt"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one attempt, as far as an answer or an exception tells.

    `code` is the code that the contract names, `status` the HTTP status (0 without an answer), `body` the decoded JSON
    or None. `retry_after` is in seconds. `replayed` says that the receiver repeats an earlier answer.
    """

    kind: Says
    code: int | str | None = None
    status: int = 0
    body: Any = None
    reason: str = ""
    retry_after: float | None = None
    replayed: bool = False


class Unsuccessful(SurefootError):
    """The answer is not a success; `reading` says what it means by the contract, and is recorded as that."""

    def __init__(self, reading: Reading) -> None:
        """`reading` is what `attempt.classify` made of the answer."""
        super().__init__(f"the answer says {reading.kind.replace('_', ' ')}: {reading.reason}")
        self.reading = reading


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of any library. `is_read` is False when its body has not arrived here yet."""

    status: int
    headers: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    body: Any = None
    codes: tuple[str, ...] = ()
    is_read: bool = True
    is_error: bool = False

    @property
    def is_success(self) -> bool:
        """True for a status of 200 to 299 that was not raised as an error."""
        return 200 <= self.status < 300 and not self.is_error

    @property
    def holds_error(self) -> bool:
        """True if the body speaks of an error, as an answer of GraphQL or Slack does under status 200."""
        whole: Any = self.body
        body = cast("dict[str, Any]", whole) if isinstance(whole, dict) else dict[str, Any]()
        return bool(body.get("error") or body.get("errors")) or False in (body.get("ok"), body.get("success"))

    @property
    def retry_after(self) -> float | None:
        """Seconds; a date counts from the answer's own Date."""
        value = self.headers.get("retry-after")
        if value is None:
            return None
        try:
            return max(0.0, float(value))
        except ValueError:
            from email.utils import parsedate_to_datetime
        try:
            sent = parsedate_to_datetime(self.headers.get("date", ""))
            return max(0.0, (parsedate_to_datetime(value) - sent).total_seconds())
        except (ValueError, TypeError):
            return None

    @property
    def replayed(self) -> bool:
        """True if the receiver says that it repeats an earlier answer."""
        return any(self.headers.get(name, "").strip().lower() == "true" for name in REPLAY_HEADERS)

    def found_codes(self, code_at: tuple[str, ...]) -> list[str]:
        """The codes that this answer holds, most specific first."""
        places = code_at or (ERROR_PLACES if self.is_success else PLACES)
        found = [code for place in places for code in codes_at(self.body, place.split("."))]
        if not self.is_success:
            found += [self.headers[name] for name in CODE_HEADERS if name in self.headers]
        return list(dict.fromkeys([*found, *self.codes]))


def codes_at(body: Any, path: list[str]) -> Iterator[str]:
    """The codes at a path such as `errors.*.code`; an empty value is no code."""
    if not path:
        if isinstance(body, str | int) and not isinstance(body, bool) and body:
            text = str(body)
            yield text.rpartition("#")[2].partition(":")[0] if "#" in text else text
        return
    name, *rest = path
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        for value in fields.values() if name == "*" else [fields[name]] if name in fields else []:
            yield from codes_at(value, rest)
    elif isinstance(body, list | tuple) and name == "*":
        for value in cast("list[Any]", body):
            yield from codes_at(value, rest)


def holds(body: Any, marks: tuple[str, ...]) -> bool:
    """True if some field of the body is exactly one of these strings, other than where it repeats the request."""
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        return any(holds(value, marks) for name, value in fields.items() if name not in ECHOES)
    if isinstance(body, list | tuple):
        return any(holds(value, marks) for value in cast("list[Any]", body))
    return isinstance(body, str) and body in marks


def decoded(body: Any) -> Any:
    """JSON as values; None for what is not JSON."""
    if isinstance(body, bytes | str):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, ValueError):
            return None
    return cast("Any", body) if isinstance(body, dict | list) else None


def attribute(thing: Any, name: str) -> Any:
    """An attribute of somebody else's object; None if there is none, or if reading it goes wrong."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def _status_in(thing: Any, *names: str) -> int:
    for name in names:
        value = attribute(thing, name)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
            return int(value)
    return 0


def _headers_of(thing: Any) -> dict[str, str]:
    headers: Any = attribute(thing, "headers")
    pairs: Any = headers.items() if hasattr(headers, "items") else ()
    return {str(name).lower(): str(value) for name, value in pairs}


def _content_of(response: Any) -> tuple[Any, bool]:
    """The body as far as it has arrived, and whether it has."""
    for name in ("_content", "_body"):  # httpx and requests; aiohttp and urllib3
        content = attribute(response, name)
        if isinstance(content, bytes | str):
            return content, True
    if any(hasattr(response, name) for name in ("_body", "iter_content", "aiter_bytes", "readinto")):
        return None, False
    for name in ("json_body", "data", "body", "http_body"):
        content = attribute(response, name)
        if isinstance(content, dict | list | bytes | str):
            return cast("Any", content), True
    return None, True


def _of_aws(parsed: Mapping[str, Any], is_error: bool) -> HttpAnswer | None:
    """botocore's answers are dicts, which other dicts may look like."""
    about = parsed.get("ResponseMetadata")
    if not isinstance(about, dict) or "HTTPStatusCode" not in about:
        return None
    told = cast("dict[str, Any]", about)
    headers = {name.lower(): str(value) for name, value in told.get("HTTPHeaders", {}).items()}
    return HttpAnswer(status=told["HTTPStatusCode"], headers=headers, body=dict(parsed), is_error=is_error)


def response_answer(response: Any) -> HttpAnswer | None:
    """What a response says; None if it is none that we know."""
    if isinstance(response, Mapping):
        return _of_aws(cast("Mapping[str, Any]", response), is_error=False)
    for name in ("last_response", "http_response"):  # what stripe's, openai's and anthropic's answers keep
        held = attribute(response, name)
        response = response if held is None else held
    status = _status_in(response, "status_code", "status", "code")
    if not status or not hasattr(response, "headers") or isinstance(response, BaseException):
        return None
    content, is_read = _content_of(response)
    return HttpAnswer(status=status, headers=_headers_of(response), body=decoded(content), is_read=is_read)


def error_answer(error: BaseException) -> HttpAnswer | None:
    """The answer that a client library raised as an exception; None if it carries none."""
    response = attribute(error, "response")
    if isinstance(response, Mapping):
        return _of_aws(cast("Mapping[str, Any]", response), is_error=True)
    answer = response_answer(response) if response is not None else None
    status = _status_in(error, "status_code", "http_status", "status", "code")
    codes = _own_codes(error, status or (answer.status if answer else 0))
    if answer is not None:
        body = answer.body if answer.body is not None else decoded(attribute(error, "body"))
        return msgspec.structs.replace(answer, body=body, codes=codes, is_error=True)
    if not status and not codes:
        return None
    content, _ = _content_of(error)
    if content is None and type(error).__module__ == "urllib.error":
        content = _read_rest(error)
    return HttpAnswer(status=status, headers=_headers_of(error), body=decoded(content), codes=codes, is_error=True)


def _own_codes(error: BaseException, status: int) -> tuple[str, ...]:
    """The exception's own `code`, where it is not the status: text, or a number as of twilio."""
    if type(error).__module__.partition(".")[0] == "aiohttp":  # its code is the status, by an old name
        return ()
    code = attribute(error, "code")
    if isinstance(code, str) and code:
        return (code,)
    is_number = isinstance(code, int) and not isinstance(code, bool)
    return (str(int(code)),) if is_number and status and code and code != status else ()


def _read_rest(error: Any) -> Any:
    """urllib hands the body over as the exception's file, which has arrived or ends with the read timeout."""
    try:
        return error.read()
    except Exception:
        return None
