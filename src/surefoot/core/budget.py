"""What a run may use: wall time, attempts, tokens, money. How it is counted is in `meter`."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec
from msgspec.structs import force_setattr

from .errors import UsageError

WALL_SECONDS_MAX = 100 * 366 * 86400.0


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of a run; None is no limit. One that is passed ends the run as failed, with BudgetExceeded.

    `wall` (a timedelta, or seconds) counts from the run's creation, waiting included. `attempts` are executions of
    steps and sends of effects, retries included. `tokens` and `money` are what `surefoot.spend` reports.
    """

    wall: timedelta | float | None = None
    attempts: int | None = None
    tokens: int | None = None
    money: Decimal | None = None
    currency: str = "USD"

    def __post_init__(self) -> None:
        """Refuse limits that let nothing through; `wall` is kept in seconds, `money` as a Decimal."""
        wall = cast("Any", self.wall)
        seconds = wall.total_seconds() if isinstance(wall, timedelta) else wall
        if seconds is not None:
            is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if not (is_time and 0 < seconds <= WALL_SECONDS_MAX):
                raise UsageError(f"a budget's wall must be a positive time, up to 100 years, found {wall!r:.120}")
            force_setattr(self, "wall", float(seconds))
        for name in ("attempts", "tokens"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"a budget's {name} must be a whole number, 1 or more, found {value!r}")
        if self.money is not None:
            money = amount(self.money, "a budget's money")
            if not money:
                raise UsageError("a budget's money must be more than 0; leave it out for no limit")
            force_setattr(self, "money", money)
        if not isinstance(cast("Any", self.currency), str) or not self.currency.strip():
            raise UsageError(f"a budget's currency must be a text such as 'USD', found {self.currency!r}")
        if (self.wall, self.attempts, self.tokens, self.money) == (None, None, None, None):
            raise UsageError("a budget needs a limit: wall=, attempts=, tokens= or money=")

    def wall_seconds(self) -> float:
        """`wall` in seconds, 0 for no limit."""
        return float(cast("float", self.wall)) if self.wall is not None else 0.0


def amount(value: Any, what: str) -> Decimal:
    """An amount of money, exactly; a float is not one."""
    if isinstance(value, Decimal | int | str) and not isinstance(value, bool):
        try:
            money = Decimal(value)
        except InvalidOperation:
            raise UsageError(f'{what} must be an amount such as Decimal("0.25"), found {value!r}') from None
        if money.is_finite() and money >= 0:
            return money
    raise UsageError(f'{what} must be a Decimal, such as Decimal("0.25"), 0 or more and not a float, found {value!r}')


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One report of consumption, as the journal keeps it."""

    tokens: int = 0
    money: Decimal | None = None
