"""An existing store, opened to look at it: what every command reads through.

No owner is registered by looking. A store is never created: a path that does not exist, or is empty, is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from ..core import policy
from ..core.digest import BLOB_MARK
from ..core.dispatch import Served
from ..core.effect import OPEN, Effect, Evidence, Status
from ..core.errors import Damaged, RunNotFound
from ..core.ids import check_id
from ..core.journal import Entry, EntryKind
from ..core.run import Run
from ..runtime.app import Surefoot
from ..runtime.opening import ALMOST_URLS
from .exits import Exit, Failed
from .shapes import EffectRow, EvidenceRow, RunRow
from .text import shell

DEFAULT_DB = "agents.db"
POSTGRES = ("postgresql://", "postgres://")
VARIABLE = "SUREFOOT_DB"
EVERYTHING = 1 << 31
KEY_SHOWN = 12


def url_of(given: str | None) -> str:
    """The store that is meant: what was given on the command line, else the variable, else the default."""
    return given or os.environ.get(VARIABLE) or DEFAULT_DB


def check_exists(url: str) -> None:
    """Raises Failed unless there is something to open."""
    if url in ("memory:", ":memory:"):
        raise Failed(Exit.BAD_INPUT, "memory: holds nothing that another process could look at; give --db a file")
    if url.startswith(POSTGRES):
        check_schema_exists(url)
    if not url.startswith("sqlite:///") and ("://" in url or url.startswith(ALMOST_URLS)):
        return  # opening it says what is wrong with it
    path = Path(url.removeprefix("sqlite:///"))
    hint = f"give --db PATH, or set {VARIABLE}; a store is created by the first `Surefoot(path)` of a program"
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Failed(Exit.NOT_FOUND, f"no store at {url!r} ({reason}); {hint}") from None
    if path.is_file() and not size:
        raise Failed(Exit.NOT_FOUND, f"{url!r} is an empty file, not a store; {hint}")


def check_schema_exists(url: str) -> None:
    """Raises Failed unless the database holds a store; looking at one never makes it."""
    try:
        from ..stores.postgres.schema import find_version
    except ImportError:
        return  # opening it says how to install the driver
    if not find_version(url):
        raise Failed(
            Exit.NOT_FOUND,
            "there is no store in that database; `surefoot migrate` makes one, and so does the first "
            "`Surefoot(url)` of a program. If there should be one, look at the database's name and ?surefoot_schema=",
        )


class Standing(msgspec.Struct, frozen=True):
    """The owner of something: its name, and whether it may still be working."""

    name: str
    is_live: bool
    why: str = ""


class Desk:
    """One open store. Use as `with`."""

    def __init__(self, db: str | None) -> None:
        """`db` is what was given on the command line; else the variable, else the default."""
        self._given = db
        self.url = url_of(db)
        check_exists(self.url)
        self.sf = Surefoot(self.url)
        self.store = self.sf.store
        self.now = self.sf.engine.clock.now()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *ignored: object) -> None:
        """Close the store."""
        self.sf.close()

    # --- finding ------------------------------------------------------------------------------------------------

    def read_run(self, run_id: str) -> tuple[Run, list[Entry], str]:
        """(run, journal, damage); with damage the journal is empty. Raises RunNotFound, Damaged, UsageError."""
        check_id(run_id, "RUN")
        try:
            read = self.store.read_run(run_id)
        except Damaged as damaged:
            run = next((r for r in self.store.find_runs(limit=EVERYTHING) if r.id == run_id), None)
            if run is None:
                raise
            return run, [], str(damaged)
        if read is None:
            raise RunNotFound(run_id)
        return read[0], read[1], ""

    def effects_of(self, run_id: str, entries: Iterable[Entry]) -> list[tuple[Effect, set[str]]]:
        """Effects that this run made or asked for, oldest first, each with its slots in this run."""
        found = {e.key: (e, {e.slot}) for e in reversed(self.store.find_effects(run_id=run_id, limit=EVERYTHING))}
        for entry in entries:
            if entry.kind != EntryKind.INTENT:
                continue
            key = entry.value.decode(errors="replace")
            held = found[key][0] if key in found else self.store.read_effect(key)
            if held is not None:
                found.setdefault(key, (held, set()))[1].add(entry.slot)
        return list(found.values())

    def owner_name(self, owner_id: int) -> str:
        """The process behind an owner's number; "" if it is not known."""
        owner = self.store.read_owner(owner_id) if owner_id else None
        return owner.name() if owner is not None else ""

    def unattended(self, effect: Effect) -> Effect | None:
        """The effect as it stands now, if it is open and nobody works on it.

        It is read again before its owner is called dead: the owner may have settled it and ended since it was listed.
        """
        while effect.status in OPEN and not (effect.owner and self.standing(effect.owner).is_live):
            fresh = self.store.read_effect(effect.key)
            if fresh is None or fresh.stamp == effect.stamp:
                return effect
            effect = fresh
        return None

    def standing(self, owner_id: int) -> Standing:
        """Who holds this, and whether somebody else may take it; core decides."""
        owner = self.store.read_owner(owner_id) if owner_id else None
        vantage = self.sf.engine.look(owner_id)
        name = owner.name() if owner is not None else ""
        if not vantage.may_take_from(owner_id, owner):
            return Standing(name, True)
        if owner is None or owner_id in vantage.gone:
            return Standing(name, False, "its process died")
        return Standing(name, False, "its process died or hangs: its lease is over")

    def serving(self) -> list[Served]:
        """What each live worker takes from queues."""
        owners = [owner for owner in self.store.board.find_owners() if owner.serves is not None]
        return [owner.serves for owner in owners if owner.serves is not None and self.standing(owner.id).is_live]

    # --- values and rows ----------------------------------------------------------------------------------------

    def value(self, stored: bytes) -> Any:
        """A stored value as plain JSON, fetched if it is a large one; None if there is none."""
        if not stored:
            return None
        try:
            content = self.store.read_blob(stored[1:]) if stored[:1] == BLOB_MARK else stored
            return msgspec.json.decode(content)
        except (Damaged, msgspec.DecodeError, UnicodeDecodeError) as error:
            return {"damaged": str(error)}

    def run_row(self, run: Run) -> RunRow:
        """The run as it is printed."""
        return RunRow(
            id=run.id,
            workflow=run.workflow,
            status=str(run.status),
            reason=run.reason,
            created_at=run.created_at,
            updated_at=run.updated_at,
            claims=run.fence,
            cancel_requested=bool(run.cancel_at),
        )

    def effect_row(self, effect: Effect, asked_by: str = "") -> EffectRow:
        """The effect as it is printed; `asked_by` is the run through which it was found."""
        return EffectRow(
            key=effect.key,
            name=effect.name,
            identity=effect.identity,
            run=effect.run,
            slot=effect.slot,
            status=str(effect.status),
            contract=str(effect.contract.kind),
            attempts=effect.attempts,
            created_at=effect.created_at,
            updated_at=effect.updated_at,
            first_sent_at=effect.first_sent_at,
            doubted_at=effect.doubted_at,
            reason=effect.reason,
            request=self.value(effect.request),
            receipt=self.value(effect.receipt),
            compensates=effect.compensates,
            evidence=[self._evidence_row(e) for e in effect.evidence],
            explained=policy.explain(effect, self.now) if effect.status in OPEN else "",
            resolve=self.resolve_commands(effect, asked_by),
        )

    def _evidence_row(self, evidence: Evidence) -> EvidenceRow:
        return EvidenceRow(
            at=evidence.at,
            kind=evidence.kind,
            found=evidence.found,
            text=evidence.text,
            who=evidence.who,
            attempt=evidence.attempt,
            value=self.value(evidence.value),
        )

    # --- commands to paste --------------------------------------------------------------------------------------

    def command(self, name: str, *words: str, options: Sequence[str] = ()) -> str:
        """A command on this store; words that look like options are kept from being read as such."""
        place = ("--db", without_password(self._given)) if self._given else ()
        guard = ("--",) if any(word.startswith("-") and word != "-" for word in words) else ()
        front, back = (options, ()) if guard else ((), options)
        return shell("surefoot", name, *place, *front, *guard, *words, *back)

    def resolve_commands(self, effect: Effect, asked_by: str = "") -> list[str]:
        """The three ways out of a parked effect's doubt; none when it is not parked."""
        if effect.status is not Status.PARKED:
            return []
        words = (asked_by or effect.run or "-", effect.key[:KEY_SHOWN])
        answers = (("--happened", "JSON"), ("--did-not-happen",), ("--abandon",))
        return [self.command("resolve", *words, options=(*answer, "--why", "TEXT")) for answer in answers]


def without_password(place: str) -> str:
    """A store's address as it may be shown: the password stays where it came from, PGPASSWORD or a password file."""
    head, _, tail = place.partition("://")
    login, at, rest = tail.rpartition("@")
    shown = f"{head}://{login.partition(':')[0]}@{rest}" if at and ":" in login else place
    return re.sub(r"(?<=[?&])password=[^&]*&?", "", shown) if tail else shown
