"""What an exception from an effect's body says about the request: not sent, refused, in flight, there, or nothing.

Only what is certain counts. A connection that was never made is not sent; a status that the contract names is a
refusal; anything else (a timeout, a reset, a 500, an unreadable answer) says nothing, and the effect is in doubt.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator

from ..core.contract import Contract
from ..core.errors import Exists, NotSent, Refused
from ..core.outcome import Answered

_UNSENT_CLASSES = frozenset(
    {
        # by name, so that no client library has to be imported; each is raised before a byte of the request leaves
        "ConnectError",  # httpx, httpx2, httpcore
        "ConnectTimeout",  # httpx, httpcore, requests
        "PoolTimeout",  # httpx, httpcore
        "NewConnectionError",  # urllib3
        "NameResolutionError",  # urllib3
        "ConnectTimeoutError",  # urllib3, botocore
        "ClientConnectorError",  # aiohttp
        "ClientConnectorDNSError",  # aiohttp
        "UnsupportedProtocol",  # httpx
        "InvalidURL",  # httpx, requests
        "gaierror",  # socket
    }
)
_UNSENT_MODULES = frozenset(
    ("httpx", "httpx2", "httpcore", "requests", "urllib3", "botocore", "aiohttp", "socket", "_socket")
)


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """The exception, what it was raised from, and what urllib wraps as `reason`."""
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    while stack:
        link = stack.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        reason = getattr(link, "reason", None)
        stack += [link.__cause__, link.__context__, reason if isinstance(reason, BaseException) else None]
        stack += [argument for argument in link.args if isinstance(argument, BaseException)]


def was_not_sent(error: BaseException) -> bool:
    """True if the request certainly never left this process."""
    for link in chain_of(error):
        if isinstance(link, NotSent | builtins.ConnectionRefusedError):
            return True
        for kind in type(link).__mro__:
            if kind.__name__ in _UNSENT_CLASSES and kind.__module__.partition(".")[0] in _UNSENT_MODULES:
                return True
    return False


def codes_of(error: BaseException) -> list[int | str]:
    """The status and error codes that an exception carries, most specific first."""
    found: list[int | str] = []
    response = getattr(error, "response", None)
    for holder, names in ((error, ("code", "status_code", "status")), (response, ("status_code", "status"))):
        for name in names:
            value = getattr(holder, name, None)
            if isinstance(value, int | str) and not isinstance(value, bool) and value not in found:
                found.append(value)
    return found


def classify(error: Exception, contract: Contract) -> Answered:
    """The answer that an exception stands for, as far as the contract names it."""
    reason = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, Refused):
        return Answered(kind="refused", reason=error.reason, code=error.code)
    if isinstance(error, Exists):
        return Answered(kind="exists", reason=reason)
    if was_not_sent(error):
        return Answered(kind="unsent", reason=reason)
    named = contract.answers.meaning(codes_of(error))
    if named is not None:
        return Answered(kind=named[0], reason=reason, code=named[1])
    return Answered(kind="unknown", reason=reason)
