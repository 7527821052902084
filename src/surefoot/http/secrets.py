"""Credentials in what is recorded: some services quote the one that they refuse, and a record must not."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote_plus, urlsplit

from .request import KEYS_IN_QUERY

HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie")
"""Request headers that hold a credential; nothing of them is stored, nor of the keys that stand in an address."""
CHARACTERS_MIN = 8


def without_secrets(content: bytes, url: str, headers: Mapping[str, str]) -> bytes:
    """An answer, with `[hidden]` wherever it quotes a credential of its request."""
    given = [headers.get(name, "").rpartition(" ")[2] for name in HEADERS]
    for pair in urlsplit(url).query.split("&"):
        name, _, value = pair.partition("=")
        if name in KEYS_IN_QUERY:
            given += [value, unquote_plus(value)]
    for secret in given:
        if len(secret) >= CHARACTERS_MIN:
            content = content.replace(secret.encode(), b"[hidden]")
    return content
