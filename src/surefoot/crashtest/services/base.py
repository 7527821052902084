"""What the gateway asks of a service, and what it gets back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...testing.twins.messages import Call, Page


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A reply that may leave now, what was performed by it, and what it cost.

    `acted` names effects that are in the ledger, on disk. `refused` says why a model would not serve such a request.
    `unmatched` says why a recording holds no answer.
    """

    page: Page
    acted: tuple[str, ...] = ()
    tokens: int = 0
    refused: str = ""
    unmatched: str = ""


class Backend(Protocol):
    """One service of one world. Several threads may call it."""

    def answer(self, call: Call, target: str) -> Answered:
        """Act on one request. What it did is durable when this returns. `target` is path and query as written."""
        ...

    def close(self) -> None:
        """End what it started."""
        ...
