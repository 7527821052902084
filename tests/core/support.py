"""Plain makers of records, and a view over dictionaries that undoes nothing: what the core's tests share."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from surefoot.core.contract import Contract, Margins, keyed
from surefoot.core.effect import Effect, Evidence, Status
from surefoot.core.journal import Draft, Entry, EntryKind, first_head, seal
from surefoot.core.lease import Owner, Vantage
from surefoot.core.run import Run, RunStatus
from surefoot.core.term import FIRST
from surefoot.core.writes import Answer, Blobs, Write

WINDOW = 1000.0
BARE = Margins(safety_seconds=0, clock_skew_seconds=0, short_window_seconds=0)
KEYED = keyed(WINDOW, lag=10.0)
"""Protected for 500 seconds from the first possible send."""


def make_effect(status: Status = Status.ATTEMPTED, contract: Contract = KEYED, **fields: Any) -> Effect:
    """An effect first sent at 100, whose attempt ends by 110; owner 1 holds it for run `r`."""
    made = Effect(
        key="k" * 32,
        namespace="n",
        identity="ticket:acme",
        name="open_ticket",
        run="r",
        slot="open_ticket",
        status=status,
        contract=contract,
        request=b'{"who":"acme"}',
        request_digest=b"d" * 16,
        sent_key="k",
        timeout_seconds=8.0,
        budget_seconds=300.0,
        owner=1,
        holder="r",
        created_at=100.0,
        updated_at=100.0,
        attempts=1,
        first_sent_at=100.0,
        attempted_at=100.0,
        deadline_at=110.0,
    )
    return replace(made, **fields)


def make_run(status: RunStatus = RunStatus.RUNNING, **fields: Any) -> Run:
    """Run `r` in the hands of owner 1 under fence token 3."""
    made = Run(
        id="r",
        workflow="w",
        status=status,
        arguments=b"{}",
        args_digest=b"a",
        fence=3,
        owner=1 if status is RunStatus.RUNNING else 0,
        created_at=1.0,
        updated_at=1.0,
    )
    return replace(made, **fields)


def make_evidence(kind: str, found: str, at: float = 120.0, attempt: int = 1, **fields: Any) -> Evidence:
    return Evidence(at=at, kind=kind, found=found, attempt=attempt, **fields)


def make_owner(owner_id: int, *, boot: str = "b", lease_until: float = 99.0) -> Owner:
    return Owner(id=owner_id, pid=owner_id, host="h", boot=boot, started_at=1.0, lease_until=lease_until)


def seen_by(owner: int, *, at: float = 200.0, gone: frozenset[int] = frozenset()) -> Vantage:
    """What a process sees at lease time 50, when the leases of `make_owner` still hold."""
    return Vantage(owner=owner, boot="b", lease_now=50.0, at=at, gone=gone)


def make_draft(slot: str, kind: EntryKind = EntryKind.STEP, value: bytes = b"1", **fields: Any) -> Draft:
    return replace(Draft(int(kind), slot, b"", "", value, 1.0), **fields)


def make_journal(run_id: str, *drafts: Draft) -> list[Entry]:
    """The drafts, sealed in this order."""
    head, entries = first_head(run_id), []
    for draft in drafts:
        entry, head = seal(head, draft)
        entries.append(entry)
    return entries


class Rows:
    """A view over dictionaries, saved as it goes."""

    def __init__(self, *records: Run | Effect | Owner) -> None:
        self.again = False
        self.term = FIRST
        self.runs: dict[str, Run] = {}
        self.effects: dict[str, Effect] = {}
        self.owners: dict[int, Owner] = {}
        self.entries: dict[str, list[Entry]] = {}
        self.blobs: dict[bytes, bytes] = {}
        for record in records:
            self._put(record)

    def _put(self, record: Run | Effect | Owner) -> None:
        if isinstance(record, Run):
            self.runs[record.id] = record
        elif isinstance(record, Effect):
            self.effects[record.key] = record
        else:
            self.owners[record.id] = record

    put_run = put_effect = put_owner = _put

    def run(self, run_id: str) -> Run | None:
        return self.runs.get(run_id)

    def effect(self, key: str) -> Effect | None:
        return self.effects.get(key)

    def owner(self, owner_id: int) -> Owner | None:
        return self.owners.get(owner_id)

    def put_blobs(self, blobs: Blobs) -> None:
        self.blobs.update(blobs)

    def append(self, run_id: str, draft: Draft) -> None:
        length, digest = self.seal_of(run_id)
        entry, _ = seal(replace(first_head(run_id), length=length, digest=digest), draft)
        self.entries.setdefault(run_id, []).append(entry)

    def has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        assert self.again, "a store is asked for entries only when a write is tried again"
        return any((entry.slot, entry.kind) == (slot, kind) for entry in self.entries.get(run_id, ()))

    def seal_of(self, run_id: str) -> tuple[int, bytes]:
        entries = self.entries.get(run_id)
        return (len(entries), entries[-1].digest) if entries else (0, first_head(run_id).digest)

    def snapshot(self) -> Any:
        """All that is stored, to be compared."""
        entries = {name: list(kept) for name, kept in self.entries.items()}
        return dict(self.runs), dict(self.effects), dict(self.owners), entries, dict(self.blobs)

    @property
    def the_effect(self) -> Effect:
        return self.effects["k" * 32]

    @property
    def slots(self) -> list[tuple[int, str]]:
        return [(entry.kind, entry.slot) for entry in self.entries.get("r", ())]


def live_rows(*records: Run | Effect | Owner) -> Rows:
    """Run `r` of live owner 1, beside live owner 2 with run `r2`."""
    other = replace(make_run(owner=2), id="r2")
    return Rows(make_owner(1), make_owner(2), make_run(), other, *records)


def decide(rows: Rows, write: Write) -> Answer:
    """Decide once, then again as after a commit of unknown outcome: the same verdict, and nothing changes."""
    rows.again = False
    first = write.decide(rows)
    stored = rows.snapshot()
    rows.again = True
    second = write.decide(rows)
    assert second.verdict is first.verdict
    assert rows.snapshot() == stored
    return first


def changed(before: Any, after: Any) -> dict[str, Any]:
    """The fields of a record that a move changed, with their new values."""
    old, new = asdict(before), asdict(after)
    return {name: value for name, value in new.items() if value != old[name]}
