"""Tokens as a user gives them, and as they are kept: with the time at which they were asked for.

A life is counted from *before* the request, on the wall clock and, within one boot, also on the clock that nobody can
set; the older answer counts. So a clock that is set back cannot make a dead token look alive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..core.errors import Refused, UsageError

SKEW_SECONDS = 30.0
"""How far the wall clock may be behind the moment of issue before the token counts as expired."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """What a token endpoint gives. Its texts are never shown.

    `refresh_token=None`: the one that was used stays good. `expires_in` (seconds) counts from the request; None: not
    known, so that only `access_token(refused=...)` replaces it. `access_token=""`: there is none yet.
    """

    access_token: str = field(default="", repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_in: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for what cannot be a token; the message shows types and lengths only."""
        for name in ("access_token", "refresh_token"):
            text = getattr(self, name)
            if text is None and name == "refresh_token":
                continue
            if not isinstance(text, str):
                raise UsageError(f"Token({name}=) must be a text, found {type(text).__name__}")
            if any(ord(character) < 33 or ord(character) > 126 for character in text):
                raise UsageError(
                    f"Token({name}=) holds a blank or a character that no header can carry; pass it as it came"
                )
        if self.refresh_token == "":
            raise UsageError("Token(refresh_token='') is empty; leave it out if the old refresh token stays good")
        life: Any = self.expires_in
        if life is not None and (
            isinstance(life, bool) or not isinstance(life, int | float) or not 0 <= life < math.inf
        ):
            raise UsageError(f"Token(expires_in=) must be seconds, 0 or more, found {type(life).__name__} {life!r}")

    @staticmethod
    def of(answer: Mapping[str, Any]) -> Token:
        """The token in a token endpoint's JSON; Refused with the code if it is an error, also inside a 200."""
        code = answer.get("error")
        if isinstance(code, str) and code:
            raise Refused("the token endpoint answered with an error", code=code)
        access, life = answer.get("access_token"), answer.get("expires_in")
        if not isinstance(access, str) or not access:
            raise UsageError("the token endpoint's answer holds no access_token")
        return Token(
            access_token=access,
            refresh_token=answer.get("refresh_token") or None,
            expires_in=None if life is None else float(life),
        )


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept, inside a sealed box. Its representation shows no secret."""

    access_token: str
    refresh_token: str
    lifetime_seconds: float | None
    obtained_at: float
    boot: str
    boot_at: float

    def __repr__(self) -> str:
        """Nothing but the times."""
        return f"Held(lifetime_seconds={self.lifetime_seconds}, obtained_at={self.obtained_at})"

    def seconds_left(self, now: float, boot: str, boot_now: float) -> float:
        """How long the access token still lives, by the clock that says less; inf if its life is not known."""
        if not self.access_token:
            return 0.0
        if self.lifetime_seconds is None:
            return math.inf
        age = now - self.obtained_at
        if boot == self.boot:
            age = max(age, boot_now - self.boot_at)
        elif age < -SKEW_SECONDS:
            return 0.0  # the clock was set back, and nothing else tells how old it is
        return self.lifetime_seconds - max(age, 0.0)

    def needed_seconds(self, min_seconds: float) -> float:
        """How long it has to live to be given out: never more than half of its life, or it would never be."""
        return min_seconds if self.lifetime_seconds is None else min(min_seconds, self.lifetime_seconds / 2)


class Moment(msgspec.Struct, frozen=True):
    """Both clocks at once."""

    now: float
    boot: str
    boot_now: float


def held_from(token: Token, moment: Moment, refresh_token: str = "") -> Held:
    """The token as it is kept; `refresh_token` stays if the answer brought no new one."""
    return Held(
        access_token=token.access_token,
        refresh_token=token.refresh_token or refresh_token,
        lifetime_seconds=None if token.expires_in is None else float(token.expires_in),
        obtained_at=moment.now,
        boot=moment.boot,
        boot_at=moment.boot_now,
    )
