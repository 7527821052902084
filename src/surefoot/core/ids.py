"""Names that outlive a process: run ids, slots and keys. Their derivation is frozen by a test.

Changing one byte of `derive_key` would send every effect that is in doubt under a second key, so it never changes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from .digest import blake2b
from .errors import UsageError

KEY_BYTES = 16
_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SHAPES = ("uuid", "uuid5", "uuid7", "hex", "base32", "base62", "number", "sequence")


def derive_key(namespace: str, identity: str) -> str:
    """128 bits from namespace and identity, as 32 hex digits; the same for ever, on every machine."""
    space, name = namespace.encode(), identity.encode()
    framed = struct.pack(">I", len(space)) + space + struct.pack(">I", len(name)) + name
    return blake2b(framed, digest_size=KEY_BYTES, person=b"surefoot-key-v1").hexdigest()


def next_key(key: str, generation: int) -> str:
    """The bits under which an effect is sent again after its key was used up and its absence was proved."""
    if not generation:
        return key
    framed = bytes.fromhex(key) + struct.pack(">I", generation)
    return blake2b(framed, digest_size=KEY_BYTES, person=b"surefoot-next-v1").hexdigest()


def render_key(key: str, shape: str, length: int = 0, *, prefix: str = "", at: float = 0.0) -> str:
    """Render a derived key as a receiver wants it; stored in the intent, so it is computed once.

    Shapes: `uuid` (version 4 layout), `uuid5`, `uuid7` (begins with the time `at`), `hex`, `base32` (lower case, no
    look-alikes), `base62`, `number` (decimal digits), `sequence` (`at` in microseconds: it grows with each intent).
    `length` shortens `hex`, `base32`, `base62` and `number`; below 64 bits it is refused, since keys would collide.
    """
    raw = int(key, 16)
    match shape:
        case "uuid" | "uuid5" | "uuid7":
            version = {"uuid": 4, "uuid5": 5, "uuid7": 7}[shape]
            bits = raw & ~(0xF << 76) & ~(0x3 << 62) | version << 76 | 0x2 << 62
            if version == 7:
                bits = bits & ((1 << 80) - 1) | int(at * 1000) << 80
            text = f"{bits:032x}"
            text = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        case "hex":
            text = key
        case "base32":
            text = "".join(_BASE32[raw >> shift & 31] for shift in range(125, -1, -5))
        case "base62":
            text = "".join(_BASE62[raw // 62**place % 62] for place in range(21, -1, -1))
        case "number":
            text = str(raw).rjust(39, "0")
        case "sequence":
            text = str(int(at * 1_000_000))
        case _:
            raise UsageError(f"unknown key shape {shape!r}; expected {', '.join(SHAPES[:-1])} or {SHAPES[-1]}")
    # the last digits of base62 and of a number differ most
    return prefix + (text if not length else text[-length:] if shape == "base62" else text[:length])


def check_key_shape(shape: str, length: int) -> None:
    """Refuse a shape that would leave fewer than 64 bits."""
    render_key("0" * 32, shape)
    floor = {"hex": 16, "base32": 14, "base62": 11, "number": 20}.get(shape)
    if length and floor is None:
        raise UsageError(f"a {shape} key has its own length; leave length= out, or use hex, base32, base62 or number")
    if length and floor is not None and length < floor:
        raise UsageError(f"a {shape} key of {length} characters has fewer than 64 bits; use at least {floor}")


def check_id(text: object, what: str) -> str:
    """Accept 1 to 200 printable characters without control characters or surrogates."""
    if not isinstance(text, str):
        raise UsageError(f"{what} must be a string, found {type(text).__name__}")
    if not 1 <= len(text) <= 200:
        raise UsageError(f"{what} must have 1 to 200 characters, found {len(text)}")
    if (not text.isprintable() and any(map(_is_control, text))) or text != text.strip():
        raise UsageError(f"{what} {text!r} holds a control character, a surrogate or outer blanks; use printable text")
    return text


def check_text(text: object, what: str, most: int = 4000) -> str:
    """Accept any text that can be stored, also none; `most` characters."""
    if not isinstance(text, str):
        raise UsageError(f"{what} must be a string, found {type(text).__name__}")
    if len(text) > most:
        raise UsageError(f"{what} has {len(text):,} characters, {most:,} at most")
    if any(0xD800 <= ord(character) < 0xE000 for character in text):
        raise UsageError(f"{what} holds a surrogate, which no text has")
    return text


def _is_control(character: str) -> bool:
    code = ord(character)
    return code < 32 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000


def check_name(text: object, what: str) -> str:
    """Accept a step, effect or workflow name: printable, without `/` and `#`, which build slots."""
    name = check_id(text, what)
    if "/" in name or "#" in name:
        raise UsageError(f"{what} {name!r} holds '/' or '#', which separate the parts of a slot; choose another name")
    return name


def slot_of(branch: str, name: str, occurrence: int) -> str:
    """Slot = branch path + name + how many times that name was asked for in that branch."""
    slot = f"{branch}/{name}" if branch else name
    return f"{slot}#{occurrence}" if occurrence else slot


def branch_of(slot: str) -> str:
    """The branch path of a slot; the root is the empty string."""
    return slot.rpartition("/")[0]


def check_identity(template: str, names: Iterable[str]) -> None:
    """Refuse a template that names anything but parameters, before it is used."""
    fill_identity(template, dict.fromkeys(names, "x"))


def fill_identity(template: str, arguments: dict[str, object]) -> str:
    """Fill `"review:{partner}"` from the arguments by plain name; anything cleverer is refused."""
    import string

    parts: list[str] = []
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"identity template {template!r} is malformed: {error}") from None
    for literal, field, spec, conversion in pieces:
        parts.append(literal)
        if field is None:
            continue
        if spec or conversion or field not in arguments:
            known = ", ".join(sorted(arguments)) or "none"
            raise UsageError(
                f"identity template {template!r} names {{{field}}}; it may only name arguments (here: {known})"
            )
        value = arguments[field]
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise UsageError(f"identity argument {field!r} must be a str or int, found {type(value).__name__}")
        parts.append(str(value))
    return check_id("".join(parts), "identity")
