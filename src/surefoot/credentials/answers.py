"""What an exception of the exchange says about the refresh token, without a word that could hold a secret.

Client libraries put URLs, bodies and whole answers into their messages. So none of their text is kept: only the names
of the classes, the status, the provider's error code, and the line that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, cast

from ..core.errors import NotSent, Refused
from ..effects.classify import codes_of, was_not_sent
from .contract import TokenContract

DEAD = "the provider refused the refresh token"
"""How the reason of a refresh begins that no repeat can help; it is stored, so it never changes."""

CLIENT_CODES = frozenset(
    {
        "invalid_client",
        "invalid_request",
        "invalid_scope",
        "unauthorized_client",
        "unsupported_grant_type",
        "incorrect_client_credentials",
    }
)
"""RFC 6749, section 5.2: the request was refused before the refresh token was looked at."""
REFUSING_STATUSES = frozenset((400, 401, 403, 404, 405, 413, 415, 422))
TOO_MANY = 429
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,47}")


class ExchangeLost(Exception):
    """Nobody knows what became of the exchange."""


def told(error: BaseException, contract: TokenContract, secrets: Iterable[str] = ()) -> Exception:
    """The exception to raise instead of `error`: Refused, NotSent, or ExchangeLost when it says nothing."""
    if isinstance(error, NotSent) or was_not_sent(error):
        return NotSent(f"{described(error)}: the request did not leave")
    hidden = frozenset(secrets)
    named = [code for code in _named_codes(error) if _CODE.fullmatch(code) and code not in hidden]
    statuses = [code for code in codes_of(error) if isinstance(code, int)]
    status = f"status {statuses[0]}" if statuses else ""
    dead = next((code for code in named if code in contract.dead_codes), None)
    if dead is not None:
        return Refused(f"{DEAD} ({dead})", code=dead)
    if TOO_MANY in statuses:
        return NotSent(f"the provider refused it for now (status {TOO_MANY})")
    client = next((code for code in named if code in CLIENT_CODES), None)
    if client is not None or isinstance(error, Refused) or any(code in REFUSING_STATUSES for code in statuses):
        shown = ", ".join(filter(None, (client or next(iter(named), ""), status))) or "without a code"
        return Refused(f"the provider refused the request ({shown})", code=client or next(iter(named), None))
    return ExchangeLost(": ".join(filter(None, (described(error), status))))


def described(error: BaseException) -> str:
    """The class of an exception and the line that raised it."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f" in {code.co_name}, {PurePath(code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{where}"


def _named_codes(error: BaseException) -> list[str]:
    """Error codes in words, wherever client libraries keep them."""
    found = [code for code in codes_of(error) if isinstance(code, str)]
    response = getattr(error, "response", None)
    for body in (getattr(error, "body", None), response, _json_of(response), _read(error)):
        found += _codes_in(body)
    return found


def _json_of(response: Any) -> Any:
    try:
        return response.json()
    except Exception:  # whatever a client library raises for a body that it has not read, or that is no JSON
        return None


def _read(error: BaseException) -> Any:
    """The body of urllib's HTTPError, which is its own response."""
    import msgspec

    try:
        return msgspec.json.decode(cast("Any", error).read())
    except Exception:
        return None


def _codes_in(body: Any) -> list[str]:
    if not isinstance(body, Mapping):
        return []
    held = cast("Mapping[str, Any]", body)
    found: list[Any] = [held.get(name) for name in ("error", "Error", "code", "Code", "status")]
    nested = [code for inner in found if isinstance(inner, Mapping) for code in _codes_in(inner)]
    return [code for code in found if isinstance(code, str)] + nested
