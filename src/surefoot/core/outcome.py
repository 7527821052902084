"""What became of an effect, as values: Confirmed, Refused (see `errors.py`), InDoubt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Confirmed(Generic[R]):
    """It happened; `receipt` is the proof, `effect` is the key under which it stands, `code` can undo it."""

    receipt: R
    effect: str
    name: str = ""
    code: Any = field(default=None, repr=False, compare=False)


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
