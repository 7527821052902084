"""What the services' wires share: forms, JSON pages, and lists that come in parts.

A wire is pure: it knows a service's paths, fields and error bodies, and nothing of what a repeat meets. Signatures and
tokens are not checked, since a test of crashes is not a test of passwords.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import parse_qsl

from ..messages import Json, Page, Question, Thing

RETRY_AFTER_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Listing(Question):
    """A list that a client filters by time: at most `limit` things made since `since`, the first `skip` left out.

    `value` is what it is a list of, such as a channel, a repository or a recipient: the marker of what is made there.
    `how` is what the wire needs again when it writes the answer.
    """

    since: float = 0.0
    skip: int = 0
    limit: int = 100
    how: str = ""


def part_of(found: Sequence[Thing], asked: Listing, *, newest_first: bool = True) -> tuple[list[Thing], int]:
    """The things of one page, and how many come after it."""
    kept = sorted((t for t in found if t.made_at >= asked.since), key=lambda t: t.number, reverse=newest_first)
    page = kept[asked.skip : asked.skip + asked.limit]
    return page, max(len(kept) - asked.skip - len(page), 0)


def json_page(status: int, body: Json | Sequence[Json], headers: dict[str, str] | None = None) -> Page:
    """A page of JSON."""
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return Page(status=status, body=json.dumps(body).encode(), headers={**kind, **(headers or {})})


def json_of(body: bytes) -> Json:
    """The object in a body; empty when there is none, or it is something else."""
    try:
        return object_of(json.loads(body or b"{}"))
    except ValueError:
        return {}


def object_of(value: Any) -> Json:
    """A part of a body, where it is an object; else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def first_of(value: Any) -> Json:
    """The first object of a part of a body that is a list; else an empty one."""
    return object_of(cast("list[Any]", value)[0]) if isinstance(value, list) and value else {}


def form_of(body: bytes) -> Json:
    """A form with its bracketed fields nested: `metadata[k]=v` is `{"metadata": {"k": "v"}}`."""
    fields: Json = {}
    for name, value in parse_qsl(body.decode(errors="replace"), keep_blank_values=True):
        first, *inner = name.replace("]", "").split("[")
        if inner:
            fields[first] = {**object_of(fields.get(first)), ".".join(inner): value}
        else:
            fields[first] = value
    return fields


def whole_number(text: Any, otherwise: int) -> int:
    """The number in a query or a form field, or `otherwise`."""
    return int(text) if str(text).isdigit() else otherwise


def number(text: Any) -> float:
    """The number in a query or a form field, or 0.0."""
    return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]*)?", str(text)) else 0.0


def iso(seconds: float) -> str:
    """An instant as JSON APIs write it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_of(text: str) -> float:
    """The instant that an ISO text names in UTC; 0.0 for none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
