"""Who may work on what: a lease a process, a fence token a run and an effect.

One lease row stands for a whole process, so heartbeats cost the same with one run or a thousand. Lease times are
seconds of a clock that counts suspend and that the wall clock cannot move; they compare only within one boot.
Presence (a lock that the operating system drops with the process) may only hasten a takeover; safety is the fence.
"""

from __future__ import annotations

import msgspec

from .dispatch import Served


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """One process that works on this store. `serves`: what it takes from queues, while it is a worker."""

    id: int
    pid: int
    host: str
    boot: str
    started_at: float
    lease_until: float
    stamp: int = 0
    serves: Served | None = None

    def name(self) -> str:
        """For messages."""
        return f"process {self.pid} on {self.host}"


class Vantage(msgspec.Struct, frozen=True, kw_only=True):
    """What an asker knows while it judges others: itself, the lease clock, and who is certainly gone."""

    owner: int
    boot: str
    lease_now: float
    at: float
    gone: frozenset[int] = frozenset()
    name: str = ""

    def may_take_from(self, holder_id: int, holder: Owner | None) -> bool:
        """True if work held by `holder_id` may be claimed: nobody, ourselves, gone, or past its lease."""
        if holder_id in (0, self.owner) or holder is None or holder_id in self.gone:
            return True
        return holder.boot != self.boot or holder.lease_until <= self.lease_now
