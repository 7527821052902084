"""What an exception of the exchange says about the refresh token, without a word that could hold a secret.

Client libraries put URLs, bodies and whole answers into their messages. So none of their text is kept: only the names
of the classes, the status, the provider's error code, and the line that failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from ..core.errors import NotSent, Refused
from ..effects.classify import was_not_sent
from ..effects.reading import HttpAnswer, Unsuccessful, error_answer
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
    status, codes = _said(error)
    hidden = frozenset(secrets)
    named = [code for code in codes if _CODE.fullmatch(code) and code not in hidden]
    shown_status = f"status {status}" if status else ""
    dead = next((code for code in named if code in contract.dead_codes), None)
    if dead is not None:
        return Refused(f"{DEAD} ({dead})", code=dead)
    if status == TOO_MANY:
        return NotSent(f"the provider refused it for now (status {TOO_MANY})")
    client = next((code for code in named if code in CLIENT_CODES), None)
    if client is not None or isinstance(error, Refused) or status in REFUSING_STATUSES:
        shown = ", ".join(filter(None, (client or next(iter(named), ""), shown_status))) or "without a code"
        return Refused(f"the provider refused the request ({shown})", code=client or next(iter(named), None))
    return ExchangeLost(": ".join(filter(None, (described(error), shown_status))))


def described(error: BaseException) -> str:
    """The class of an exception and the line that raised it."""
    trace, where = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f" in {code.co_name}, {PurePath(code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{where}"


def _said(error: BaseException) -> tuple[int, list[str]]:
    """(status or 0, error codes in words) of the answer that an exception carries, whichever library raised it."""
    if isinstance(error, Refused):
        return 0, [str(error.code)] if error.code is not None else []
    if isinstance(error, Unsuccessful):
        code = error.reading.code
        return error.reading.status, [str(code), *HttpAnswer(status=400, body=error.reading.body).found_codes(())]
    answer = error_answer(error)
    return (answer.status, answer.found_codes(())) if answer is not None else (0, [])
