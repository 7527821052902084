"""What became of an effect, as values: Confirmed, Refused (see `errors.py`), InDoubt."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

R = TypeVar("R")


class Confirmed(msgspec.Struct, Generic[R], frozen=True, kw_only=True, eq=False):
    """It happened; `receipt` is the proof, `effect` is the key under which it stands, `code` can undo it."""

    receipt: R
    effect: str
    name: str = ""
    code: Any = None

    def __eq__(self, other: object) -> bool:
        """Equal to what says the same; who can undo it is no part of that."""
        if not isinstance(other, Confirmed):
            return NotImplemented
        theirs = cast("Confirmed[Any]", other)
        return (self.receipt, self.effect, self.name) == (theirs.receipt, theirs.effect, theirs.name)

    def __hash__(self) -> int:
        """Of the same; TypeError if the receipt has no hash."""
        return hash((self.receipt, self.effect, self.name))

    def __repr__(self) -> str:
        """Without the code."""
        return f"Confirmed(receipt={self.receipt!r}, effect={self.effect!r}, name={self.name!r})"


class InDoubt(msgspec.Struct, frozen=True, kw_only=True):
    """It may have happened, nobody can know by asking, and a person has to tell."""

    effect: str
    name: str
    run: str
    reason: str

    def how(self) -> str:
        """The command that ends this doubt."""
        return (
            f"surefoot resolve {self.run or '-'} {self.effect[:12]} --happened JSON | --did-not-happen | --abandon "
            "--why TEXT"
        )


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt ended, as far as this process can tell.

    `landed`: with `receipt` (encoded), or without, when the answer says so and brings none. `unsent`: certainly not
    sent. `unknown`: nothing is known. The others are what the contract's `Answers` name: `refused`, `exists`,
    `in_flight`, `changed_payload`, `spent`, `expired`, `not_processed`.
    """

    kind: str
    receipt: bytes = b""
    reason: str = ""
    code: int | str | None = None
    retry_after: float = 0.0
    value: Any = None


def storable(answer: Answered) -> Answered:
    """The answer with a reason and a code that can be stored, whatever the body's exception held."""
    reason, code = storable_text(answer.reason), cast("object", answer.code)
    if code is not None and not isinstance(code, int):
        code = storable_text(code)
    if reason is answer.reason and code is answer.code:
        return answer
    return replace(answer, reason=reason, code=code)


def storable_text(text: object) -> str:
    """The text itself; what is none, or holds surrogates, as it is shown."""
    shown = text if isinstance(text, str) else str(text)
    return shown if shown.isascii() else shown.encode("utf-8", "backslashreplace").decode()
