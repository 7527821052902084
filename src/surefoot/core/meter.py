"""What a run has used, counted from its journal, against its budget. Pure.

Only the journal counts, so a restart forgets nothing. Consumption is recorded when it is reported, apart from the step
that reports it: what a killed step had paid for stays paid for.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec

from .budget import Budget, Spent
from .calls import Called, is_call, is_try, unpack
from .errors import BudgetExceeded
from .flows import Begun
from .journal import SPENT, Entry, EntryKind

SPEND = "spend"


class Used:
    """What a run has used so far."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """Counted from a journal."""
        self.attempts, self.tokens, self.money = 0, 0, Decimal(0)
        intents = set[str]()
        for entry in entries:
            match entry.kind:
                case EntryKind.STEP if is_call(entry.slot):
                    self.attempts += entry.attempts
                    called, _ = unpack(entry.value, entry.slot)
                    self.add(spent_of(called))
                case EntryKind.STEP | EntryKind.FAILURE:
                    self.attempts += entry.attempts
                case EntryKind.INTENT:
                    intents.add(entry.slot)
                    self.attempts += 1
                case EntryKind.OUTCOME:
                    self.attempts += entry.attempts - (entry.slot in intents)
                case _ if is_try(entry.slot):
                    self.attempts += entry.attempts
                case _ if is_spending(entry):
                    self.add(msgspec.json.decode(entry.value, type=Spent))
                case _:
                    pass

    def add(self, spent: Spent) -> None:
        """Count one report."""
        self.tokens += spent.tokens
        self.money += spent.money or 0


def spent_of(called: Called) -> Spent:
    """What a call counts for."""
    return Spent(tokens=called.usage.total if called.usage is not None else 0, money=called.money)


def is_spending(entry: Entry) -> bool:
    """True if the entry is a report of consumption."""
    name = entry.slot.rpartition("/")[2].partition("#")[0]
    return entry.kind == EntryKind.MARK and (name == SPEND or entry.slot.startswith(SPENT))


class Meter:
    """Compares what a run has used with its budget. `until` is when its wall time ends, by the store's clock."""

    def __init__(self, run_id: str, budget: Budget, until: float, entries: Iterable[Entry]) -> None:
        """`entries` is the journal as it was read."""
        self.run_id, self.budget, self.until = run_id, budget, until
        self.used = Used(entries)

    def begin(self, begun: Begun, now: float) -> BudgetExceeded | None:
        """Count what begins now, unless it may not."""
        attempt = begun in (Begun.STEP, Begun.CALL, Begun.EFFECT)
        limit = self.budget.attempts
        exceeded = self.over(now)
        if exceeded is None and attempt and limit is not None and self.used.attempts >= limit:
            exceeded = BudgetExceeded(self.run_id, "attempts", str(limit), str(self.used.attempts + 1))
        if exceeded is None or begun is Begun.RESEND:
            self.used.attempts += attempt or begun is Begun.RESEND
        return None if begun in (Begun.RESEND, Begun.UNDO) else exceeded

    def over(self, now: float) -> BudgetExceeded | None:
        """The limit that has been passed, if one has."""
        budget, used = self.budget, self.used
        if self.until and now >= self.until:
            wall = budget.wall_seconds()
            return BudgetExceeded(self.run_id, "wall time", f"{wall:g} s", f"{now - self.until + wall:.1f} s")
        if budget.tokens is not None and used.tokens > budget.tokens:
            return BudgetExceeded(self.run_id, "tokens", str(budget.tokens), str(used.tokens))
        if budget.money is not None and used.money > budget.money:
            currency = budget.currency
            return BudgetExceeded(self.run_id, "money", f"{budget.money} {currency}", f"{used.money} {currency}")
        return None
