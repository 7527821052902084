"""Boundaries: the requests of an agent, each numbered once when it arrives and called by a name that two runs share.

A name is service, method, path and occurrence. Numbers alone would differ between runs of an agent that asks several
services at once, and a kill would then land somewhere else than it was meant to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..testing.twins.messages import Call

_IDS = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|\b[0-9a-f]{16,}\b|\d{6,}"
)
TEXT_MAX = 600


@dataclass(kw_only=True)
class Arrival:
    """One request as it arrived, and what became of it. `acted` names the effects that it caused."""

    number: int
    service: str
    place: str
    occurrence: int
    life: int
    call: Call
    at: float
    is_model: bool
    answered: int = 0
    tokens: int = 0
    acted: list[str] = field(default_factory=list[str])
    struck: str = ""

    @property
    def boundary(self) -> str:
        """Its name, such as `shop POST /charges#2`."""
        return f"{self.service} {self.place}#{self.occurrence}"


def place_of(call: Call, ignore: Sequence[str]) -> str:
    """Method and path, without what differs from run to run."""
    path = call.path
    for pattern in ignore:
        path = re.sub(pattern, "", path)
    return f"{call.method} {_IDS.sub('{id}', path)}"


def said(call: Call) -> str:
    """A request for a person: first line, the headers that name it, and its body."""
    keys = [f"{name}: {value}" for name, value in call.headers.items() if "idempot" in name or name.endswith("-key-id")]
    body = call.body[:TEXT_MAX].decode("utf-8", "replace")
    return "\n".join([f"{call.method} {call.path}", *keys, *([body] if body else [])])


def has_key(call: Call) -> bool:
    """Whether it carries an idempotency key in one of the usual headers."""
    return any("idempot" in name for name in call.headers)


def difference(one: Sequence[Arrival], other: Sequence[Arrival]) -> str:
    """How two clean runs differ, in words; "" when they made the same requests, in whatever order."""
    first, second = Counter(a.boundary for a in one), Counter(a.boundary for a in other)
    if first == second:
        return ""
    for place, (mine, theirs) in enumerate(zip(one, other, strict=False), 1):
        if mine.boundary != theirs.boundary and (first - second or second - first):
            return f"request {place} was {mine.boundary} in the first run and {theirs.boundary} in the second"
    more, fewer = (one, other) if len(one) > len(other) else (other, one)
    extra = more[len(fewer)].boundary if len(more) > len(fewer) else ""
    return f"the first run made {len(one)} requests and the second {len(other)}; only one of them made {extra}"


def reordered(one: Iterable[Arrival], other: Iterable[Arrival]) -> bool:
    """Whether the same requests came in another order."""
    return [a.boundary for a in one] != [a.boundary for a in other]
