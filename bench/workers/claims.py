"""How many runs a second one worker can claim and end, alone, with every run's row already in the queue.

With `--seconds 1` a transaction in REPEATABLE READ has looked at the queue before and is held open: from then on no row
version that claims leave behind may be removed. What counts for a claim is how many those are, not how old the snapshot
is, so a minute of claims stands for ten idle ones.
"""

import json
import os
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from msgspec.structs import replace
from protocol import arguments

from surefoot.core.dispatch import Served
from surefoot.core.dispatch_writes import ClaimReady
from surefoot.core.run import RunStatus
from surefoot.core.writes import StartRun
from surefoot.stores.postgres.store import PostgresStore
from surefoot.testing.place import AT, Place, seen_by

OWNER, SEED = 11, 500
SERVED = Served(queues=("mails",), workflows=(("w", ""),))
PARTS = 4


@dataclass
class Claims:
    """One store, and the writes of one worker."""

    url: str

    def __post_init__(self) -> None:
        self.store = PostgresStore(self.url)
        self.place = Place(lambda: self.store, fresh=lambda: self.place)

    def pending(self, number: int) -> StartRun:
        begun = self.place.start(f"run-{number}", created_at=AT + number / 1e6)
        run = replace(begun.run, status=RunStatus.PENDING, owner=0, queue="mails")
        return replace(begun, run=run)

    def seed(self, count: int) -> None:
        for first in range(0, count, SEED):
            self.store.transact([self.pending(number) for number in range(first, min(first + SEED, count))])

    def claim_and_end(self, count: int) -> float:
        """Claims a second, each ended before the next."""
        started = time.perf_counter()
        for _ in range(count):
            vantage = replace(seen_by(OWNER), at=AT + 1_000)
            claim = ClaimReady(served=SERVED, slots=1, vantage=vantage, stamp=next(self.place.stamps))
            (run,) = self.store.transact([claim])[0].runs
            self.store.transact([self.place.end(run_id=run.id, fence=run.fence)])
        return count / (time.perf_counter() - started)


def measure(url: str, count: int, *, with_snapshot: bool) -> dict[str, Any]:
    claims = Claims(url)
    claims.seed(count)
    snapshot = psycopg.connect(url)
    if with_snapshot:
        snapshot.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        snapshot.execute("SELECT count(*) FROM surefoot.queue").fetchone()
    rates = [claims.claim_and_end(count // PARTS) for _ in range(PARTS)]
    snapshot.close()
    return {"claims": count, "first_s": rates[0], "last_s": rates[-1], "by_part_s": rates}


def main() -> None:
    args = arguments(("def",))
    print(json.dumps(measure(args.url, args.n, with_snapshot=bool(args.seconds))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
