"""Clients of other packages with their own retries off and the attempt's timeout set: one attempt is one request.

Each package names the two differently, and several send a request again by default; `docs/clients.md` counts how often.
They are imported when asked for. Most bound each wait for the network, not the whole request: a timeout is split so
that connecting and the wait for the answer's first byte end together with the attempt.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.contract import Place
from ..core.errors import UsageError

if TYPE_CHECKING:
    from .attempt import Attempt

CONNECT_SECONDS_MAX = 5.0


def is_installed(package: str) -> bool:
    """True if the package could be imported."""
    from importlib.util import find_spec

    return find_spec(package) is not None


def split_timeout(seconds: float) -> tuple[float, float]:
    """(seconds to connect, seconds to wait for the answer); together the whole."""
    connect = min(CONNECT_SECONDS_MAX, seconds / 4)
    return connect, seconds - connect


def http_headers(attempt: Attempt) -> dict[str, str]:
    """The key's header; a mail's header belongs into the mail and is left out."""
    record = attempt.record
    return {} if record is not None and record.contract.place is Place.MAIL_HEADER else dict(attempt.headers)


# Packages are imported whole: a part of one, while another thread is importing the rest of it, could be a deadlock.
def make_session(attempt: Attempt) -> Any:
    """See `Attempt.session`."""
    import requests
    import urllib3
    from requests.adapters import HTTPAdapter

    class OneRequest(HTTPAdapter):
        """Sends once, and ends with the attempt where the caller says no timeout."""

        def send(self, request: Any, stream: Any = False, timeout: Any = None, *args: Any, **options: Any) -> Any:
            limit: Any = urllib3.Timeout(total=attempt.timeout) if timeout is None else timeout
            return super().send(request, stream, limit, *args, **options)

    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, OneRequest(max_retries=0))
    session.headers.update(http_headers(attempt))
    session.params = dict(attempt.params)
    return session


def make_client(attempt: Attempt, *, is_async: bool, library: str, options: dict[str, Any]) -> Any:
    """See `Attempt.client` and `Attempt.async_client`."""
    if library not in ("", "httpx", "httpx2"):
        raise UsageError(f"attempt.client(library={library!r}): expected 'httpx' or 'httpx2'")
    name = library or ("httpx" if is_installed("httpx") or not is_installed("httpx2") else "httpx2")
    module = __import__(name)
    connect, answer = split_timeout(attempt.timeout)
    kind = module.AsyncClient if is_async else module.Client
    headers = {**http_headers(attempt), **options.pop("headers", {})}
    params = {**attempt.params, **options.pop("params", {})}
    timeout = options.pop("timeout", module.Timeout(answer, connect=connect, pool=connect))
    return kind(headers=headers, params=params, timeout=timeout, **options)


def _stripe(attempt: Attempt) -> dict[str, Any]:
    import stripe
    import urllib3

    limit: Any = urllib3.Timeout(total=attempt.timeout)
    fallback = stripe.HTTPXClient(timeout=attempt.timeout) if is_installed("httpx") else None
    client = stripe.RequestsClient(timeout=limit, async_fallback_client=fallback)
    return {"max_network_retries": 0, "http_client": client}


def _botocore(attempt: Attempt) -> dict[str, Any]:
    from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]

    connect, answer = split_timeout(attempt.timeout)
    retries: Any = {"total_max_attempts": 1}
    return {"config": Config(retries=retries, connect_timeout=connect, read_timeout=answer)}


def _github(attempt: Attempt) -> dict[str, Any]:
    whole = max(1, math.floor(attempt.timeout))
    return {"retry": 0, "timeout": whole, "seconds_between_writes": None, "seconds_between_requests": None}


def _slack(attempt: Attempt) -> dict[str, Any]:
    return {"retry_handlers": [], "timeout": max(1, math.floor(attempt.timeout))}


def _openai(attempt: Attempt) -> dict[str, Any]:
    return {"max_retries": 0, "timeout": attempt.timeout}


def _twilio(attempt: Attempt) -> dict[str, Any]:
    from twilio.http.http_client import TwilioHttpClient  # pyright: ignore[reportMissingTypeStubs]

    return {"http_client": TwilioHttpClient(timeout=attempt.timeout, max_retries=0)}


def _aiohttp(attempt: Attempt) -> dict[str, Any]:
    from aiohttp import ClientTimeout

    connect, _ = split_timeout(attempt.timeout)
    return {"timeout": ClientTimeout(total=attempt.timeout, sock_connect=connect), "headers": http_headers(attempt)}


def _urllib3(attempt: Attempt) -> dict[str, Any]:
    import urllib3

    return {"retries": False, "timeout": urllib3.Timeout(total=attempt.timeout), "headers": http_headers(attempt)}


def _sendgrid(attempt: Attempt) -> dict[str, Any]:
    raise UsageError(
        "the constructor of sendgrid takes no timeout, and it sends nothing again by itself: make the client, then set "
        "client.client.timeout = attempt.timeout"
    )


OPTIONS: dict[str, Callable[[Attempt], dict[str, Any]]] = {
    "aiohttp": _aiohttp,
    "anthropic": _openai,
    "boto3": _botocore,
    "botocore": _botocore,
    "github": _github,
    "openai": _openai,
    "sendgrid": _sendgrid,
    "slack_sdk": _slack,
    "stripe": _stripe,
    "twilio": _twilio,
    "urllib3": _urllib3,
}


_SPELLED = {"pygithub": "github", "slack": "slack_sdk"}
_OTHER_WAYS = {
    "requests": "attempt.session()",
    "httpx": 'attempt.client("httpx")',
    "httpx2": 'attempt.client("httpx2")',
}


def advice(library: str) -> str:
    """How to keep a package to one request."""
    if library == "aiohttp":
        return (
            "aiohttp sends PUT and DELETE again when an answer is lost and cannot be told not to; stopping it is enough"
        )
    name = _SPELLED.get(library.lower(), library)
    way = f'attempt.options("{name}")' if name in OPTIONS else _OTHER_WAYS.get(name)
    return f"Switch its own retries off{f': make its client with {way}' if way else ', and pass it attempt.timeout'}"


def make_options(attempt: Attempt, library: str) -> dict[str, Any]:
    """See `Attempt.options`."""
    make = OPTIONS.get(_SPELLED.get(library.lower(), library.lower()))
    if make is None:
        raise UsageError(
            f"attempt.options({library!r}) is not known; expected one of {', '.join(sorted(OPTIONS))}. For another "
            "package, switch its retries off by hand and pass it attempt.timeout"
        )
    return make(attempt)
