"""Calls that a framework makes: entries whose slot is found by content, where places in the code do not repeat.

A framework calls its model in loops and tasks whose order is its own business. So a call's slot is its call scope, its
name, a digest of what is asked, and how often exactly that was asked before. Call scopes are branches whose path begins
with `@`, the run's own; a scope below it is `@/planner`, the second one of that name `@/planner#1`.

An entry's value is one line of JSON about the call, and then what was answered, byte by byte.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from .errors import Damaged

ROOT = "@"
CALL = "call:"
"""Slots of answered calls."""
TRY = "try:"
"""Slots of attempts that failed: `@/try:NAME:DIGEST!0`. Nobody has to ask for them again."""
NAME_CHARACTERS_MAX = 80
_NOT_IN_SLOTS = str.maketrans({"/": "∕", "#": "＃", "!": "ǃ", "[": "(", "]": ")"})


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one call. Input includes those read from the provider's cache or written to it, output reasoning."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    written_tokens: int = 0

    @property
    def total(self) -> int:
        """What a budget counts."""
        return self.input_tokens + self.output_tokens


class Called(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the journal keeps of a call beside the answer. `answer` names a blob, in hex; `request` says what was asked.

    `branch` is the branch whose code asked, which may be cancelled on replay before it asks again.
    """

    kind: str
    branch: str = ""
    usage: Usage | None = None
    money: Decimal | None = None
    answer: str = ""
    request: str = ""


_encode = msgspec.json.encode
_decode_called = msgspec.json.Decoder(Called).decode


def pack(called: Called, answer: bytes) -> bytes:
    """The value of a call's entry."""
    return _encode(called) + b"\n" + answer


def unpack(value: bytes, slot: str = "") -> tuple[Called, bytes]:
    """(about the call, the answer as far as it is inline); Damaged when the value is none of a call."""
    head, found, answer = value.partition(b"\n")
    try:
        if not found:
            raise ValueError("it has no first line")
        return _decode_called(head), answer
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(f"the entry {slot}", f"it is not a call's ({error})") from None


def in_slot(name: str) -> str:
    """A name without what has a meaning in slots, such as the slash in a model's name."""
    return name.translate(_NOT_IN_SLOTS)[:NAME_CHARACTERS_MAX] or "call"


def in_path(name: str) -> str:
    """A name as part of a call scope's path, where a dot would begin a branch."""
    return in_slot(name).replace(".", "·")


def is_scope(path: str) -> bool:
    """True if this branch is a call scope, or one below."""
    return path.startswith(ROOT)


def above(path: str) -> str:
    """The path of the branch above: "" for the root branch and for the root call scope."""
    if not is_scope(path):
        return path.rpartition(".")[0]
    cut = max(path.rfind("/"), path.rfind("["), path.rfind("."))
    return path[:cut] if cut > 0 else ""


def scope_path(path: str) -> str:
    """The call scope of a branch: itself, the one whose tool it is (`@/planner[call_1]`), or the root."""
    if not is_scope(path):
        return ROOT
    while path.endswith("]"):
        path = path[: path.rfind("[")]
    return path


def is_call(slot: str) -> bool:
    """True for the slot of an answered call."""
    return slot.startswith(ROOT) and slot.rpartition("/")[2].startswith(CALL)


def is_try(slot: str) -> bool:
    """True for the slot of an attempt that failed."""
    return slot.startswith(ROOT) and slot.rpartition("/")[2].startswith(TRY)


def asker(slot: str, value: bytes) -> str:
    """The branch whose code asked for the call at this slot; its own branch for what is no call."""
    return unpack(value, slot)[0].branch if is_call(slot) else slot.rpartition("/")[0]


def try_slot(slot: str, count: int) -> str:
    """The slot of failed attempt `count` at a call."""
    scope, _, name = slot.rpartition("/")
    return f"{scope}/{TRY}{name.removeprefix(CALL)}!{count}"


def slot_of_try(slot: str) -> str:
    """The slot of the call that a failed attempt was made for."""
    scope, _, name = slot.rpartition("!")[0].rpartition("/")
    return f"{scope}/{CALL}{name.removeprefix(TRY)}"
