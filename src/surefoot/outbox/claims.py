"""A deliverer's hold on rows: short transactions on its own connection, and none of them open while anything is sent.

A claim only saves work: what keeps sends single is the effect's identity in Surefoot's store. So a claim that lapses,
or whose holder's clock is wrong, costs a second look and never a second send.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core.errors import UsageError
from ..runtime.engine import Engine
from .delivery import Outcome
from .row import OPEN, Row, State, row_of
from .table import check_version, run

CLAIM_SECONDS = 60.0
DEATHS_MAX = 5
"""So many deliverers may die over one row; then a person has to look."""
FOR_EVER = 1e17
MANY = 1 << 30


class Claimed(NamedTuple):
    """A row, and the claim under which it is ours for a while."""

    row: Row
    claim: str


class Claims:
    """One open connection of a deliverer's."""

    def __init__(self, connection: Any, engine: Engine, database: str) -> None:
        """Made by `over`; `database` is the database's own name."""
        self._connection, self._engine, self.database = connection, engine, database

    @staticmethod
    def over(connection: Any, engine: Engine) -> Claims:
        """On this connection, which is closed with it; UsageError if the tables are missing or newer than this code."""
        try:
            return Claims(connection, engine, _name_of(connection))
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the connection; claims that are left lapse, or are released when this process is gone."""
        self._connection.close()

    def take(self, room: int, *, suspects: bool = False) -> list[Claimed]:
        """Claim up to `room` rows that are due; `suspects` are those over which a deliverer died."""
        engine = self._engine
        now = engine.clock.now()
        claim = f"{engine.owner}.{next(engine.stamps)}"
        low, high = (1, MANY) if suspects else (0, 0)
        taken = run(self._connection, "claim", (claim, now + CLAIM_SECONDS, now, now, low, high, room)).touched
        rows = [row_of(columns) for columns in run(self._connection, "claimed", (claim,)).rows] if taken else []
        claimed = [Claimed(row, claim) for row in rows]
        for each in claimed:
            if each.row.claims > DEATHS_MAX:
                self.mark(each, poisoned(each.row))
        self._connection.commit()
        return [each for each in claimed if each.row.claims <= DEATHS_MAX]

    def has_suspects(self) -> bool:
        """True if a row is due over which a deliverer died."""
        now = self._engine.clock.now()
        found = bool(run(self._connection, "suspects", (now, now)).rows)
        self._connection.commit()
        return found

    def mark(self, claimed: Claimed, outcome: Outcome) -> None:
        """Write down what became of a row; nothing is committed yet."""
        row, claim = claimed
        now, state = self._engine.clock.now(), outcome.state.value
        if outcome.state in OPEN:
            due = min(now + outcome.again_seconds, FOR_EVER)
            run(self._connection, "put_off", (state, due, outcome.key, outcome.reason, row.id, claim))
        else:
            run(self._connection, "end", (state, now, outcome.key, outcome.receipt, outcome.reason, row.id))

    def commit(self) -> None:
        """Make marks durable."""
        self._connection.commit()

    def sweep(self, keep_seconds: float | None) -> None:
        """Release what the dead held, and forget what was delivered long enough ago."""
        now = self._engine.clock.now()
        claims = run(self._connection, "claimants", (now,)).rows
        self._connection.commit()  # what follows writes, and must not build on an older snapshot
        for (claim,) in claims:
            owner = int(str(claim).partition(".")[0])
            if owner != self._engine.owner and self._engine.look(owner).gone:
                run(self._connection, "release", (claim,))
        if keep_seconds is not None:
            run(self._connection, "forget", (now - keep_seconds,))
        self._connection.commit()

    def wake(self) -> None:
        """Make parked and stuck rows due now, but for poison."""
        run(self._connection, "wake", (FOR_EVER,))
        self._connection.commit()

    def seconds_to_next(self) -> float | None:
        """How long until the next row that was put off is due; None if there is none."""
        now = self._engine.clock.now()
        ((due,),) = run(self._connection, "next_due", (now,)).rows
        self._connection.commit()
        return None if due is None else float(due) - now


def _name_of(connection: Any) -> str:
    rows = run(connection, "database").rows
    if not rows:
        raise UsageError("surefoot_outbox_database is empty, so rows have no identity; restore its one row")
    check_version(int(rows[0][1]))
    connection.commit()
    return str(rows[0][0])


def poisoned(row: Row) -> Outcome:
    """The end of trying: only `outbox.retry` goes on."""
    reason = (
        f"its deliverer died {row.claims - 1} times while it was being sent, so it is not sent any more. Look why, and "
        "what stands in `surefoot doubts`; then outbox.retry(connection, id) or outbox.drop(connection, id, why=...)"
    )
    return Outcome(state=State.STUCK, key=row.effect_key, reason=reason, again_seconds=FOR_EVER)
