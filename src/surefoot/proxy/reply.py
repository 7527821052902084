"""Headers on their way through, and what of an answer is kept: no credential, and nothing of one connection."""

from __future__ import annotations

from collections.abc import Iterable

from ..http import recorded

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


def sent_on(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What the service gets of an agent's headers. It may compress as the proxy can undo it."""
    kept = [(name, value) for name, value in headers if name not in NOT_SENT_ON and not name.startswith(OURS)]
    return [*kept, ("accept-encoding", "gzip, deflate")]


def kept_of(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """What the agent gets of a service's headers, and what is recorded."""
    return tuple((name, value) for name, value in recorded.kept(headers) if name.lower() not in NOT_KEPT)
