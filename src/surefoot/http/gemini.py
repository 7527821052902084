"""Ids for Gemini's function calls.

Gemini's API names none, so SDKs and frameworks make them up after the answer has passed the journal: on replay they
would be others, and with them every later request and every effect that is named by one. So they are given here, from
what the call is, before anybody sees the answer.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.encode


class CallIds:
    """Counts the function calls of one answer. `seed` is what the answered call is: its slot and fingerprint."""

    def __init__(self, seed: bytes) -> None:
        """Nothing was named yet."""
        self._seed = seed
        self._count = 0

    def named(self, body: bytes) -> bytes:
        """The JSON text with an id in each function call; unchanged when there is none without."""
        if b'"functionCall"' not in body:
            return body
        try:
            content = _decode(body)
        except (msgspec.DecodeError, ValueError):
            return body
        given = [self._name(call) for answer in _list(content) for call in _calls_of(answer)]
        return _encode(content) if any(given) else body

    def _name(self, call: dict[str, Any]) -> bool:
        count, self._count = self._count, self._count + 1
        if call.get("id"):
            return False
        digest = hashlib.blake2b(self._seed + b"\0%d" % count, digest_size=9, person=b"surefoot-calls").hexdigest()
        call["id"] = f"call_{digest}"
        return True


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _calls_of(answer: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for candidate in _member(answer, "candidates"):
        content = cast("dict[str, Any]", candidate).get("content") if isinstance(candidate, dict) else None
        for part in _member(content, "parts"):
            call = cast("dict[str, Any]", part).get("functionCall") if isinstance(part, dict) else None
            if isinstance(call, dict):
                found.append(cast("dict[str, Any]", call))
    return found


def _member(value: Any, name: str) -> list[Any]:
    held = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return cast("list[Any]", held) if isinstance(held, list) else []
