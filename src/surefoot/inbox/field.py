"""Reads the Idempotency-Key field: a structured-field Item whose value is a String (RFC 9651, section 4.2.3).

https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ (version 07). Parameters are allowed by the
grammar and have no meaning. A bare value is what most clients send, so it may be accepted: `k` and `"k"` are one key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .rules import KEY_CHARS_MAX

FIELD = "Idempotency-Key"
_STRING = r'"(?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_BARE_ITEMS = (
    _STRING,
    r"-?[0-9]{1,12}\.[0-9]{1,3}",
    r"-?[0-9]{1,15}",
    r"[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*",
    r":[A-Za-z0-9+/]*={0,2}:",
    r"\?[01]",
    r"@-?[0-9]{1,15}",
    r'%"(?:[\x20-\x21\x23-\x24\x26-\x7e]|%[0-9a-f]{2})*"',
)
_PARAMETER = rf"; *[a-z*][a-z0-9_\-.*]*(?:=(?:{'|'.join(_BARE_ITEMS)}))?"
_ITEM = re.compile(rf" *({_STRING})(?:{_PARAMETER})* *", re.ASCII)
_BARE = re.compile(r"[A-Za-z0-9._~:/+=@-]+", re.ASCII)


class Malformed(ValueError):
    """The field cannot be read; the message says what was expected and what was found."""


def read_key(fields: Sequence[bytes], *, accept_bare: bool) -> str | None:
    """The key in the field's lines, None if there are none; raises Malformed."""
    if not fields:
        return None
    if len(fields) > 1:
        raise Malformed(f"expected one {FIELD} field, found {len(fields)}; send one")
    text = fields[0].decode("latin-1").strip(" \t")
    item = _ITEM.fullmatch(text)
    if item is not None:
        key = re.sub(r"\\(.)", r"\1", item[1][1:-1])
    elif accept_bare and _BARE.fullmatch(text):
        key = text
    else:
        raise Malformed(
            f'expected a string in double quotes, as in {FIELD}: "8e03978e-40d5-43e8-bc93-6894a57f9324"; '
            f"found {text[:80]!r}"
        )
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise Malformed(f"expected a key of 1 to {KEY_CHARS_MAX} characters, found {len(key)}; a UUID is a good key")
    return key
