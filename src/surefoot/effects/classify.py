"""What an answer or an exception says about the request, in the words of the receiver's contract.

Only what is certain counts. A connection that was never made is not sent; a code that the contract names is what it is
named; a success is a success unless its body holds an error. Anything else (a timeout, a reset, a 500, an unreadable
answer) says nothing, and the effect is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

import msgspec

from ..core.contract import Contract, Meaning
from ..core.errors import Exists, NotSent, Refused, UsageError
from ..core.outcome import Answered
from ..core.values import Codec
from .guard import Stopped, TooLate
from .reading import HttpAnswer, Reading, Says, Unsuccessful, error_answer, holds, response_answer

REASON_CHARACTERS_MAX = 500
_HTTPX = frozenset(("ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"))
_UNSENT: dict[str, frozenset[str]] = {
    # by package and class name, so that none has to be imported; each is raised before a byte of the request leaves
    "httpx": _HTTPX,
    "httpx2": _HTTPX,
    "httpcore": _HTTPX,
    "httpcore2": _HTTPX,
    "requests": frozenset(("ConnectTimeout", "MissingSchema", "InvalidSchema", "InvalidURL")),
    "urllib3": frozenset(("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "EmptyPoolError")),
    "botocore": frozenset(
        (
            "EndpointConnectionError",
            "ConnectTimeoutError",
            "NoCredentialsError",
            "PartialCredentialsError",
            "ParamValidationError",
        )
    ),
    "aiohttp": frozenset(
        (
            "ClientConnectorError",
            "ClientConnectorDNSError",
            "ClientConnectorSSLError",
            "ClientConnectorCertificateError",
            "ConnectionTimeoutError",
        )
    ),
    "socket": frozenset(("gaierror",)),
    "builtins": frozenset(("ConnectionRefusedError",)),
}
_WRAPPERS: dict[str, frozenset[str]] = {
    # these say nothing by themselves: what they were made from does
    "requests": frozenset(("ConnectionError", "SSLError")),
    "urllib3": frozenset(("MaxRetryError", "SSLError")),
    "botocore": frozenset(("SSLError",)),
    "urllib": frozenset(("URLError",)),
}
_NETWORK = frozenset((*_UNSENT, "urllib", "http", "h11", "h2", "ssl")) - {"builtins"}
_BEFORE_THE_REQUEST = frozenset((("socket", "create_connection"), ("ssl", "do_handshake")))
"""Functions of the standard library inside which no byte of a request has left yet."""


def package_of(error: BaseException) -> str:
    """The package that an exception's class comes from."""
    return type(error).__module__.partition(".")[0]


def _made_from(error: BaseException) -> Iterator[BaseException]:
    """What a library made this exception from. A user's `raise` inside `except` counts only with `from`."""
    reason = getattr(error, "reason", None)
    links = [error.__cause__, reason, *error.args]
    if package_of(error) in _NETWORK and not error.__suppress_context__:
        links.append(error.__context__)
    return (link for link in links if isinstance(link, BaseException))


def _broke_before_the_request(error: BaseException) -> bool:
    frames = error.__traceback__
    while frames is not None:
        frame = frames.tb_frame
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _BEFORE_THE_REQUEST:
            return True
        frames = frames.tb_next
    return False


def _verdict(error: BaseException) -> bool | None:
    """True: this says that no byte left. False: a byte may have left. None: it does not say."""
    package, name = package_of(error), type(error).__name__
    if name in _UNSENT.get(package, ()):
        return True
    if name in _WRAPPERS.get(package, ()):
        return None
    if isinstance(error, OSError) and package in ("builtins", "ssl", "socket"):
        return _broke_before_the_request(error)
    return False if package in _NETWORK else None


def was_not_sent(error: BaseException) -> bool:
    """True if the request certainly never left, as far as the exception tells: nothing in it may speak against that.

    It speaks of the last request only. Whether another one left before it, the guard knows.
    """
    verdicts: set[bool] = set()
    seen: set[int] = set()
    stack = [(error, False)]
    while stack:
        link, is_decided = stack.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        verdict = _verdict(link)
        if verdict is not None and not (is_decided and package_of(link) in ("builtins", "ssl", "socket")):
            verdicts.add(verdict)
        stack += [(inner, is_decided or verdict is True) for inner in _made_from(link)]
    return verdicts == {True}


def classify_response(response: Any, contract: Contract, marks: tuple[str, ...] = ()) -> Reading | None:
    """What a response says; None if it is no response that we know."""
    answer = response_answer(response)
    return None if answer is None else read(answer, contract, marks)


def read(answer: HttpAnswer, contract: Contract, marks: tuple[str, ...] = (), reason: str = "") -> Reading:
    """What an answer says by this contract. `marks` are texts that only this effect's own object can hold."""
    codes = answer.found_codes(contract.code_at)
    named = contract.answers.meaning([*codes, answer.status])
    told = f"status {answer.status}" + (f", {codes[0]}" if codes else "")
    kind, code = (Says(named[0].value), named[1]) if named else (Says.IN_DOUBT, None)
    if named is None and answer.is_success:
        named_codes = any(isinstance(code, str) for m in Meaning for code in getattr(contract.answers, m.value))
        if codes or answer.holds_error:
            told += ": a success that holds an error which the contract does not name"
        elif named_codes and not answer.is_read:
            told += ": its body was not read, and only that tells; read it before attempt.check or attempt.classify"
        else:
            kind = Says.LANDED
    if kind is Says.EXISTS and (contract.owned or holds(answer.body, marks)):
        kind, told = Says.LANDED, f"{told}: it exists, and it is ours"
    return Reading(
        kind=kind,
        code=code,
        status=answer.status,
        body=answer.body,
        reason=(reason or told)[:REASON_CHARACTERS_MAX],
        retry_after=answer.retry_after,
        replayed=answer.replayed,
    )


def _is_no_answer(error: BaseException) -> bool:
    """A proxy's refusal is not the receiver's; and aiohttp calls an answer that it cannot parse a status of 400."""
    return "Proxy" in type(error).__name__ or (package_of(error) == "aiohttp" and error.__cause__ is not None)


def _raised_answer(error: BaseException) -> HttpAnswer | None:
    """The answer in an exception, or in what it was raised `from`; what broke on the way hides no older answer."""
    link: BaseException | None = error
    while link is not None and not _is_no_answer(link):
        answer = error_answer(link)
        if answer is not None:
            return answer
        if _verdict(link) is not None:
            return None
        link = link.__cause__
    return None


def classify_error(
    error: BaseException, contract: Contract, marks: tuple[str, ...] = (), *, has_left: bool = False
) -> Reading:
    """What an exception says. `has_left`: a request of this attempt was seen to leave, so "not sent" cannot be."""
    reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
    match error:
        case Unsuccessful():
            return error.reading
        case NotSent():
            return Reading(kind=Says.NOT_SENT, reason=reason)
        case Refused():
            return Reading(kind=Says.REFUSED, code=error.code, reason=error.reason)
        case Exists():
            return Reading(kind=Says.LANDED if contract.owned else Says.EXISTS, reason=reason)
        case Stopped():
            in_time = isinstance(error, TooLate) and not has_left
            return Reading(kind=Says.NOT_SENT if in_time else Says.IN_DOUBT, reason=reason)
        case _:
            pass
    if isinstance(error.__cause__, Unsuccessful | NotSent):
        return classify_error(error.__cause__, contract, marks, has_left=has_left)
    answer = _raised_answer(error)
    if answer is not None:
        return read(answer, contract, marks, reason)
    if not has_left and was_not_sent(error):
        return Reading(kind=Says.NOT_SENT, reason=reason)
    return Reading(kind=Says.IN_DOUBT, reason=reason)


def answered(reading: Reading, codec: Codec) -> Answered:
    """The reading as it is recorded. Where it says that the effect happened, its body is the receipt if it fits."""
    later = reading.retry_after or 0.0
    match reading.kind:
        case Says.LANDED:
            return Answered(kind="landed", receipt=_receipt(reading, codec), reason=reading.reason, code=reading.code)
        case Says.NOT_SENT:
            return Answered(kind="unsent", reason=reading.reason)
        case Says.IN_DOUBT:
            return Answered(kind="unknown", reason=reading.reason, code=reading.code, retry_after=later)
        case (
            Says.REFUSED
            | Says.IN_FLIGHT
            | Says.EXISTS
            | Says.CHANGED_PAYLOAD
            | Says.SPENT
            | Says.EXPIRED
            | Says.NOT_PROCESSED
        ):
            return Answered(kind=reading.kind.value, reason=reading.reason, code=reading.code, retry_after=later)
        case _:
            assert_never(reading.kind)


def _receipt(reading: Reading, codec: Codec) -> bytes:
    if reading.body is not None and (content := _settled(codec, msgspec.json.encode(reading.body))):
        return content
    takes_anything = all(_settled(codec, content) for content in (b"0", b"[]", b"{}"))
    return b"" if takes_anything else _settled(codec, b"null")


def _settled(codec: Codec, content: bytes) -> bytes:
    """The content as a stored receipt; empty if it is none."""
    try:
        return codec.settle(codec.decode(content))[0]
    except UsageError:
        return b""
