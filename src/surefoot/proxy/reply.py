"""Headers on their way through, and what of an answer is kept: no credential, and nothing of one connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote_plus, urlsplit

from ..http import recorded
from ..http.request import KEYS_IN_QUERY

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
NOT_SENT_ON = HOP_BY_HOP | {"host", "content-length", "accept-encoding", "expect"}
NOT_KEPT = HOP_BY_HOP | {"server", "via"}
OURS = "x-surefoot-"
REPLAYED = ("x-surefoot-replayed", "1")
SECRETS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie")
"""Request headers that hold a credential; nothing of them is stored, nor of the keys that stand in an address."""
SECRET_CHARACTERS_MIN = 8


def sent_on(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What the service gets of an agent's headers. It may compress as the proxy can undo it."""
    kept = [(name, value) for name, value in headers if name not in NOT_SENT_ON and not name.startswith(OURS)]
    return [*kept, ("accept-encoding", "gzip, deflate")]


def kept_of(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What the agent gets of a service's headers, and what is recorded."""
    return tuple((name, value) for name, value in recorded.kept(headers) if name.lower() not in NOT_KEPT)


def without_secrets(content: bytes, url: str, headers: Mapping[str, str]) -> bytes:
    """Some services quote the credential when they refuse it; a record must not."""
    given = [headers.get(name, "").rpartition(" ")[2] for name in SECRETS]
    for pair in urlsplit(url).query.split("&"):
        name, _, value = pair.partition("=")
        if name in KEYS_IN_QUERY:
            given += [value, unquote_plus(value)]
    for secret in given:
        if len(secret) >= SECRET_CHARACTERS_MIN:
            content = content.replace(secret.encode(), b"[hidden]")
    return content
