"""What a model's reply cost, in whatever shape its endpoint says so. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

NAMES = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "promptTokenCount",
    "candidatesTokenCount",
)
TOTALS = ("total_tokens", "totalTokenCount")


def tokens_of(body: bytes) -> int:
    """The tokens that a reply says it cost, plain JSON or server-sent events; 0 when it says nothing.

    A stream repeats its count as it grows, so the largest one stands.
    """
    best = 0
    for document in _documents(body):
        for usage in _usages(document):
            best = max(best, _sum(usage))
    return best


def _documents(body: bytes) -> Iterator[Any]:
    text = body.decode("utf-8", "replace").strip()
    pieces = [text] if text[:1] in ("{", "[") else [line[5:] for line in text.splitlines() if line.startswith("data:")]
    merged: dict[str, Any] = {}
    for piece in pieces:
        try:
            document = json.loads(piece)
        except ValueError:
            continue
        yield document
        for usage in _usages(document):  # messages: input tokens come first, output tokens last
            merged.update({name: value for name, value in usage.items() if isinstance(value, int)})
    if merged:
        yield {"usage": merged}


def _usages(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, list):
        for each in cast("list[Any]", document):
            yield from _usages(each)
        return
    if not isinstance(document, dict):
        return
    held = cast("dict[str, Any]", document)
    for name in ("usage", "usageMetadata"):
        if isinstance(held.get(name), dict):
            yield held[name]
    for name in ("message", "response"):
        yield from _usages(held.get(name))


def _sum(usage: dict[str, Any]) -> int:
    for name in TOTALS:
        if isinstance(usage.get(name), int):
            return usage[name]
    return sum(value for name in NAMES if isinstance(value := usage.get(name), int))
