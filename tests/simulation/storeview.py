"""One transaction of the model's store: an immutable state in, the real write's decision, what it put out."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from surefoot.core.effect import Effect
from surefoot.core.journal import FENCE, Draft, EntryKind
from surefoot.core.lease import Owner
from surefoot.core.perform import Settled
from surefoot.core.run import Run
from surefoot.core.term import FIRST, Term
from surefoot.core.writes import Blobs

from .records import owner_row

Journal = tuple[int, str]
"""(how many intents, the status in the outcome entry or "")."""


@dataclass
class Transaction:
    """The view that a write decides on; what it puts is read off afterwards."""

    again: bool
    runs: dict[str, Run]
    effect_before: Effect | None
    lapsed: bool
    journals: dict[str, Journal]
    effect_after: Effect | None = None
    run_after: Run | None = None
    term: Term = FIRST
    twice: list[str] = field(default_factory=list)

    def run(self, run_id: str) -> Run | None:
        return self.run_after or self.runs.get(run_id)

    def effect(self, key: str) -> Effect | None:
        return self.effect_after or self.effect_before

    def owner(self, owner_id: int) -> Owner | None:
        return owner_row(owner_id, self.lapsed)

    def put_run(self, run: Run) -> None:
        self.run_after = run

    def put_effect(self, effect: Effect) -> None:
        self.effect_after = effect

    def put_owner(self, owner: Owner) -> None:
        raise AssertionError("no process appears in the model")

    def put_blobs(self, blobs: Blobs) -> None:
        pass

    def append(self, run_id: str, draft: Draft) -> None:
        if draft.slot.startswith(FENCE):
            return  # each transaction of the model sees the run as it stands, so nobody writes from memory
        intents, outcome = self.journals[run_id]
        if draft.kind == EntryKind.INTENT:
            self.journals[run_id] = (intents + 1, outcome)
        else:
            status = msgspec.json.decode(draft.value, type=Settled).status.value
            if outcome:
                self.twice.append("the journal holds two outcomes of one effect")
            self.journals[run_id] = (intents, status)

    def has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        intents, outcome = self.journals[run_id]
        return bool(intents if kind == EntryKind.INTENT else outcome)

    def seal_of(self, run_id: str) -> tuple[int, bytes]:
        return 0, b""
