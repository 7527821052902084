"""The same random writes to a memory store and to one SQLite file that two stores have open: nothing tells them apart.

After every step all three answer alike: records, journals to the last digest, searches, large values. A second machine
lets commits end in doubt (R10), and what `again=True` makes of them has to be what one plain commit makes.

The histories are derived from the code itself (`derandomize`): a failure comes again, and prints its program.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import tempfile
from collections import Counter, namedtuple
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from surefoot.core import writes
from surefoot.core.contract import keyed, lookup, natural, opaque
from surefoot.core.digest import blob_hash, short_digest
from surefoot.core.effect import OPEN, TERMINAL, TRANSITIONS, Do, Effect, Event, Evidence, IllegalMove, Status
from surefoot.core.errors import CommitUnknown, Damaged
from surefoot.core.ids import derive_key
from surefoot.core.journal import Draft, EntryKind, verify
from surefoot.core.lease import Vantage
from surefoot.core.run import UNFINISHED, RunDo, RunStatus
from surefoot.core.writes import Verdict, Write
from surefoot.stores.base import Overlay, Store
from surefoot.stores.memory import MemoryStore
from surefoot.stores.records import sealed
from surefoot.stores.sqlite.connection import QUERIES
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.place import AT, Place

RUNS = ("r0", "r1", "r2", "r3", "r4", "r\N{SNOWMAN}'\"--")
OWNERS = (11, 22, 33)
IDENTITIES = ("order:0", "order:1", "order:2", "order:3", "undo:0", "undo:1")
KEYS = tuple(derive_key("default", identity) for identity in IDENTITIES)
CONTRACTS = (keyed(3600), opaque(), lookup(0.5), natural(), keyed(60, stores_refusals=True), keyed(9))
LARGE = tuple(bytes([number]) * 70_000 for number in range(3))
PREVIEWS = ("", "amount=40", "to='ada\\n'", "\N{PILE OF POO}\u0000\u202e")
ENDS = tuple(do for do in RunDo if do is not RunDo.CLAIM)
SEEN: Counter[tuple[str, str]] = Counter()  # what was reached: (write, verdict), (status, event), (what, how)

Choice = namedtuple("Choice", "make run effect owner a b c")  # noqa: PYI024 - what is drawn for one write; zeros are the plain case
MAKERS = "append start take record claim record end cancel take record park decide join append record"
SIZES = (len(RUNS), len(KEYS), len(OWNERS), 12, 12, 12)
DRAWN = st.tuples(st.sampled_from(MAKERS.split()), *[st.integers(0, size - 1) for size in SIZES])
BATCHES = st.lists(DRAWN.map(lambda drawn: Choice(*drawn)), min_size=1, max_size=5)


class Maker:
    """Turns choices into writes: mostly such as fit what is stored, now and then anything."""

    def __init__(self, held: MemoryStore) -> None:
        self.held = held
        self.place = Place(lambda: held, fresh=lambda: self.place)
        self.stamps = self.place.stamps
        self.ticks, self.slots = itertools.count(1), itertools.count()

    def batch(self, choices: Sequence[Choice]) -> list[Write]:
        return [getattr(self, choice.make)(choice) for choice in choices]

    def now(self) -> float:
        """Every instant comes twice, as it does when two runs start within one tick."""
        return AT + next(self.ticks) // 2 * 0.0371

    def value(self, number: int) -> tuple[bytes, writes.Blobs]:
        if number % 4 == 3:
            content = LARGE[number // 4]
            return b"\0" + blob_hash(content), ((blob_hash(content), content),)
        return (b"1", bytes(range(256)), b"")[number % 4], ()

    def vantage(self, c: Choice) -> Vantage:
        gone = frozenset(owner for bit, owner in enumerate(OWNERS) if c.a >> bit & 1)
        boot, lease_now = "other boot" if c.b == 11 else "boot", 150.0 if c.b % 3 == 2 else 50.0
        return Vantage(owner=OWNERS[c.owner], boot=boot, lease_now=lease_now, at=self.now(), gone=gone)

    def run(self, c: Choice) -> str:
        """Mostly a run that somebody works on."""
        live = [run.id for run in self.held.find_runs([RunStatus.RUNNING])]
        return live[c.run % len(live)] if live and c.c < 9 else RUNS[c.run]

    def fence(self, run_id: str, c: Choice) -> int:
        run = self.held.find_run(run_id)
        return (run.fence if run else 1) - (c.c == 11)

    def effect(self, c: Choice) -> tuple[str, Effect | None]:
        """Mostly an effect that is still open."""
        live = [effect.key for effect in self.held.find_effects(sorted(OPEN))]
        key = live[c.effect % len(live)] if live and c.c < 9 else KEYS[c.effect]
        return key, self.held.read_effect(key)

    def join(self, c: Choice) -> Write:
        boot, until = "other boot" if c.b == 11 else "boot", (100.0, 200.0, 40.0)[c.a % 3]
        return self.place.join(OWNERS[c.owner], lease_until=until, boot=boot)

    def start(self, c: Choice) -> Write:
        arguments, blobs = self.value(c.a)
        begun = self.place.start(RUNS[c.run], owner=OWNERS[c.owner], created_at=self.now())
        return replace(begun, run=replace(begun.run, arguments=arguments), blobs=blobs)

    def claim(self, c: Choice) -> Write:
        why = "asked for" if c.c % 3 == 2 else ""
        return replace(self.place.claim(self.vantage(c), RUNS[c.run]), why=why)

    def draft(self, kind: int, c: Choice, value: bytes) -> Draft:
        slot = f"{c.c}.0/{c.make}#{next(self.slots)}"
        preview, args = PREVIEWS[c.b % 4], b"" if kind == EntryKind.MARK else short_digest(b"%d" % c.b)
        return Draft(kind, slot, args, preview, value, self.now() + c.b * 1e-5, 1 + c.b // 4)

    def append(self, c: Choice) -> Write:
        value, blobs = self.value(c.a)
        run_id, kind = self.run(c), (EntryKind.STEP, EntryKind.FAILURE, EntryKind.MARK)[c.b % 3]
        write = self.place.append("", run_id=run_id, fence=self.fence(run_id, c))
        return replace(write, draft=self.draft(kind, c, value), blobs=blobs)

    def end(self, c: Choice) -> Write:
        result, blobs = self.value(c.a)
        run_id = self.run(c)
        write = self.place.end(ENDS[c.b % len(ENDS)], run_id=run_id, fence=self.fence(run_id, c))
        reason, at = PREVIEWS[c.c % 4], self.now()
        return replace(write, at=at, reason=reason, result=result, blobs=blobs, length_at_claim=c.c % 3)

    def cancel(self, c: Choice) -> Write:
        return writes.CancelRun(run_id=RUNS[c.run], vantage=self.vantage(c), reason="stop", stamp=next(self.stamps))

    def take(self, c: Choice) -> Write:
        run_id = "" if c.b == 7 else self.run(c)
        request, blobs = self.value(c.effect * 2)
        request, fence = request + (b"other" if c.a == 11 else b""), self.fence(run_id, c)
        write = self.place.take(
            IDENTITIES[c.effect], request=request, run_id=run_id, fence=fence, vantage=self.vantage(c)
        )
        name, compensates = "renamed" if c.a in (9, 10) else "pay", KEYS[c.effect - 4] if c.effect >= 4 else ""
        effect = replace(write.effect, name=name, compensates=compensates, contract=CONTRACTS[c.effect])
        effect = replace(effect, created_at=self.now())
        draft = self.draft(EntryKind.INTENT, c, effect.key.encode()) if run_id and c.b not in (8, 9) else None
        return replace(write, effect=effect, names=("pay",) if c.a == 9 else (), draft=draft, blobs=blobs)

    def event(self, held: Effect | None, c: Choice, receipt: bytes) -> Event:
        legal = [do for status, do in TRANSITIONS if held is not None and status is held.status]
        dos = list(Do) if c.a == 11 or not legal else legal
        do, at = dos[c.b % len(dos)], self.now()
        learned = Evidence(at=at, kind="answer", found="landed", value=receipt, attempt=1) if c.c % 2 else None
        deadline = at + 3 if do is Do.ATTEMPT else 0.0
        return Event(do=do, at=at, receipt=receipt, reason=PREVIEWS[c.c % 4], deadline_at=deadline, evidence=learned)

    def record(self, c: Choice) -> Write:
        key, held = self.effect(c)
        run_id = held.run if held is not None and c.a != 10 else RUNS[c.run]
        receipt, blobs = self.value(c.a)
        event = self.event(held, c, receipt) if c.a != 9 else None
        after = TRANSITIONS.get((held.status, event.do)) if held is not None and event is not None else None
        evidence = Evidence(at=self.now(), kind="lookup", found="absent") if event is None else None
        late = Evidence(at=AT, kind="answer", found="landed", value=receipt) if c.c % 3 == 0 else None
        draft = self.draft(EntryKind.OUTCOME, c, b"{}") if run_id and after in TERMINAL else None
        fences = {"effect_fence": (held.fence if held else 1) - (c.c == 10), "run_fence": self.fence(run_id, c)}
        learned = {"event": event, "evidence": evidence, "late": late, "draft": draft, "blobs": blobs}
        release, stamp = c.c % 4 == 3, next(self.stamps)
        return writes.RecordEffect(run_id=run_id, key=key, release=release, stamp=stamp, **fences, **learned)

    def park(self, c: Choice) -> Write:
        key, held = self.effect(c)
        run_id = held.run if held is not None and held.run and c.a != 10 else RUNS[c.run]
        fence, vantage = self.fence(run_id, c), self.vantage(c)
        return writes.ParkUnasked(run_id=run_id, key=key, fence=fence, vantage=vantage, stamp=next(self.stamps))

    def decide(self, c: Choice) -> Write:
        parked = [effect.key for effect in self.held.find_effects([Status.PARKED])]
        key = parked[c.effect % len(parked)] if parked and c.a != 10 else KEYS[c.effect]
        receipt, blobs = self.value(c.a)
        event = self.event(self.held.read_effect(key), c, receipt)
        return writes.DecideEffect(key=key, event=event, blobs=blobs, stamp=next(self.stamps))


# --- what a store shows --------------------------------------------------------------------------------------------


def asked(store: Store, batch: Sequence[Write], *, again: bool = False) -> list[writes.Answer] | str:
    """Its answers, or the words with which it refused an illegal move."""
    try:
        return store.transact(batch, again=again)
    except IllegalMove as error:
        return str(error)


def blob(store: Store, content: bytes) -> str:
    try:
        return "there" if store.read_blob(blob_hash(content)) == content else "changed"
    except Damaged:
        return "missing"


def picture(store: Store) -> dict[str, object]:
    """Everything that can be read, by every way of reading it; chains are verified on the way."""
    shown: dict[str, object] = {}
    for run_id in RUNS:
        read = shown[f"run {run_id}"] = store.read_run(run_id)
        assert store.find_run(run_id) == (read and read[0])
        if read is not None:
            places = {(entry.slot, entry.kind) for entry in read[1]}
            assert len(places) == verify(run_id, read[1]).length, f"an entry was appended twice: {read[1]}"
    shown |= {f"effect {key}": store.read_effect(key) for key in KEYS}
    shown |= {f"owner {owner}": store.read_owner(owner) for owner in OWNERS}
    shown |= {f"large {number}": blob(store, content) for number, content in enumerate(LARGE)}
    shown["runs"] = store.find_runs(), store.find_runs(sorted(UNFINISHED)), store.find_runs(limit=2)
    shown["effects"] = store.find_effects(), store.find_effects(sorted(OPEN)), store.find_effects(limit=2)
    shown["effects of runs"] = [store.find_effects([Status.PARKED, Status.CONFIRMED], run_id=run) for run in RUNS]
    return shown


def differences(wanted: dict[str, object], found: dict[str, object]) -> dict[str, tuple[object, object]]:
    return {name: (wanted[name], found[name]) for name in wanted if wanted[name] != found[name]}


def bytes_in_memory(store: MemoryStore) -> dict[str, list[Any]]:
    """The reference's records as bytes, as a database would have to hold them."""
    entries = [
        (run_id, e.seq, e.kind, int(e.at * 1000 + 0.5), e.attempts, e.slot, e.args_digest, e.preview, e.value, e.digest)
        for run_id, found in store._entries.items()
        for e in found
    ]
    return {
        "runs": sorted((run.id, str(run.status), *sealed(run)) for run in store._runs.values()),
        "entries": sorted(entries),
        "effects": sorted((e.key, e.run, str(e.status), *sealed(e)) for e in store._effects.values()),
        "owners": sorted((owner.id, *sealed(owner)) for owner in store._owners.values()),
        "blobs": sorted(store._blobs.items()),
    }


def bytes_on_disk(path: Path) -> dict[str, list[Any]]:
    """The file's rows, read past the store."""
    columns = "r.id, seq, kind, at_ms, attempts, slot, args_digest, preview, value, e.digest"
    selects = {
        "runs": "SELECT id, status, record, digest FROM runs",
        "entries": f"SELECT {columns} FROM entries e LEFT JOIN runs r ON r.num = e.run",
        "effects": "SELECT key, run, status, record, digest FROM effects",
        "owners": "SELECT id, record, digest FROM owners",
        "blobs": "SELECT hash, content FROM blobs",
    }
    with closing(sqlite3.connect(path)) as db:
        return {table: sorted(db.execute(select)) for table, select in selects.items()}


# --- what may be retried --------------------------------------------------------------------------------------------


def touched(write: Write) -> set[str]:
    """The records that a write may change or wait for; appends share their run, and so do not count."""
    runs = {write.run_id} if write.run_id and not isinstance(write, writes.Append) else set()
    key = write.effect.key if isinstance(write, writes.TakeEffect) else getattr(write, "key", "")
    undone = KEYS[KEYS.index(key) - 4] if key in KEYS[4:] else ""
    return runs | ({key, undone} - {""})


def retries_alone(batch: Sequence[Write]) -> bool:
    """True if no record is changed by two of these writes, as in batches of sessions that each wait for their own.

    Only of such a batch a retry can be expected to change nothing: a stamp names the last write of a record.
    """
    seen, appended = set[str](), set[str]()
    for write in batch:
        too_late = isinstance(write, writes.StartRun | writes.ClaimRun) and write.run_id in appended
        if isinstance(write, writes.Join) or seen & touched(write) or too_late:
            return False
        seen |= touched(write)
        appended |= {write.run_id} if isinstance(write, writes.Append) else set()
    return True


# --- the machine ----------------------------------------------------------------------------------------------------


class SideBySide(RuleBasedStateMachine):
    """One history, three views of it: the reference, and two processes' stores on one file."""

    open_store: Callable[[Path], SqliteStore] = SqliteStore

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(dir=memory, prefix="surefoot-")
        self.path = Path(self.folder.name) / "s.db"
        self.memory = MemoryStore()
        self.stores = [type(self).open_store(self.path), type(self).open_store(self.path)]
        self.maker = Maker(self.memory)
        self.last: list[Write] = []
        self.dirty = True

    @initialize()
    def two_owners_join_and_one_starts_a_run(self) -> None:
        plain = Choice("join", 0, 0, 0, 0, 0, 0)
        runs = [plain._replace(make="start", run=number) for number in (0, 1)]
        self.write_to_both(self.maker.batch([plain, plain._replace(owner=1), *runs]), 0)
        self.write_to_both(self.maker.batch([plain._replace(make="take", effect=number) for number in (0, 4)]), 1)

    def write_to_both(self, batch: list[Write], through: int, *, again: bool = False) -> None:
        statuses = {effect.key: effect.status for effect in self.memory.find_effects()}
        wanted = asked(self.memory, batch, again=again)
        found = asked(self.stores[through], batch, again=again)
        assert found == wanted, f"the answers differ:\n  memory: {wanted}\n  sqlite: {found}"
        self.last, self.dirty = batch, True
        if isinstance(wanted, str):
            SEEN["batch", "illegal move"] += 1
            return
        for write, answer in zip(batch, wanted, strict=True):
            SEEN[type(write).__name__, answer.verdict] += 1
            event = write.event if isinstance(write, writes.RecordEffect | writes.DecideEffect) else None
            alone = event is not None and sum(write.key in touched(other) for other in batch) == 1
            if event is not None and alone and answer.verdict is Verdict.DONE and not again:
                SEEN[statuses[write.key], event.do] += 1

    @rule(choices=BATCHES, more=BATCHES)
    def both_processes_write(self, choices: list[Choice], more: list[Choice]) -> None:
        self.write_to_both(self.maker.batch(choices), 0)
        self.write_to_both(self.maker.batch(more), 1)

    @rule(choices=BATCHES, through=st.integers(0, 1))
    def effects_move(self, choices: list[Choice], through: int) -> None:
        """By legal moves, one at a time: in a batch, one illegal move undoes all."""
        for c in choices:
            make = "decide" if self.memory.find_effects([Status.PARKED]) and c.owner else "record"
            self.write_to_both(self.maker.batch([c._replace(make=make, a=c.a % 9, c=c.c % 9)]), through)

    @rule(choices=BATCHES, through=st.integers(0, 1))
    def retry_a_batch_that_was_never_applied(self, choices: list[Choice], through: int) -> None:
        SEEN["batch", "retried, was not applied"] += 1
        self.write_to_both(self.maker.batch(choices), through, again=True)

    @rule(through=st.integers(0, 1))
    def retry_a_batch_that_was_applied(self, through: int) -> None:
        """By whoever: the answer of the first try was lost after it was applied."""
        before = picture(self.memory)
        self.write_to_both(self.last, through, again=True)
        if retries_alone(self.last):
            SEEN["batch", "retried, was applied"] += 1
            assert differences(before, picture(self.memory)) == {}, "a retry changed what was applied already"

    @rule(which=st.integers(0, 1))
    def reopen_the_file(self, which: int) -> None:
        self.stores[which].close()
        self.stores[which] = type(self).open_store(self.path)
        self.dirty = True

    @invariant()
    def all_show_the_same(self) -> None:
        if self.dirty:
            wanted = picture(self.memory)
            for name, store in zip(("the first", "the second"), self.stores, strict=True):
                assert differences(wanted, picture(store)) == {}, f"{name} store shows something else"
            self.dirty = False

    def teardown(self) -> None:
        try:
            assert bytes_on_disk(self.path) == bytes_in_memory(self.memory)
            assert [store.check() for store in self.stores] == [[], []]
        finally:
            for store in self.stores:
                store.close()
            self.folder.cleanup()


class UnsureConnection:
    """A connection whose commits fail as planned: after they were applied, or before, with or without a rollback."""

    def __init__(self, db: sqlite3.Connection, plan: list[str]) -> None:
        self.db, self.plan = db, plan

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement != QUERIES["commit"] or not self.plan:
            return self.db.execute(statement, *parameters)
        match self.plan.pop(0):
            case "applied":
                self.db.execute(statement)
            case "rolled back":
                self.db.execute(QUERIES["rollback"])
        raise sqlite3.OperationalError("disk I/O error (planned)")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)


class UnsureStore(SqliteStore):
    """A SQLite store with a plan for its next commits."""

    def __init__(self, path: Path) -> None:
        self.plan: list[str] = []
        super().__init__(path)

    def _open(self) -> Any:
        return UnsureConnection(super()._open(), self.plan)


OUTCOMES = st.lists(st.sampled_from(["applied", "rolled back", "left open"]), min_size=1, max_size=3)


class InDoubt(SideBySide):
    """The same, with commits of unknown outcome, up to three in a row; the reference never notices."""

    open_store = UnsureStore

    def is_legal(self, batch: list[Write]) -> bool:
        overlay = Overlay(self.memory, again=False)
        try:
            return all(write.decide(overlay) for write in batch)
        except IllegalMove:
            return False

    def unknown(self, batch: list[Write], through: int, outcomes: Sequence[str]) -> None:
        """Each of these commits raises CommitUnknown, and does what it says."""
        store: Any = self.stores[through]
        store.plan[:] = outcomes
        for number, outcome in enumerate(outcomes):
            with pytest.raises(CommitUnknown, match="planned"):
                store.transact(batch, again=number > 0)
            SEEN["unknown", outcome] += 1
        assert store.plan == []

    @rule(choices=BATCHES, through=st.integers(0, 1), outcomes=OUTCOMES)
    def write_in_doubt(self, choices: list[Choice], through: int, outcomes: list[str]) -> None:
        """The retry makes of it exactly what one plain commit makes (and may know of a cancellation behind it)."""
        batch = self.maker.batch(choices)
        if not (self.is_legal(batch) and retries_alone(batch)):
            return
        self.unknown(batch, through, outcomes)
        wanted = self.memory.transact(batch)
        found = self.stores[through].transact(batch, again=True)
        for write, once, again in zip(batch, wanted, found, strict=True):
            same = once.verdict is again.verdict or (once.verdict, again.verdict) == (Verdict.DONE, Verdict.CANCELLED)
            assert same, f"{write}: {once} became {again}"
        self.last, self.dirty = batch, True
        self.memory_agrees_with_disk(through)

    @rule(mine=BATCHES, theirs=BATCHES, through=st.integers(0, 1), outcome=st.sampled_from(["applied", "rolled back"]))
    def write_in_doubt_while_another_process_writes(
        self, mine: list[Choice], theirs: list[Choice], through: int, outcome: str
    ) -> None:
        batch, between = self.maker.batch(mine), self.maker.batch(theirs)
        if not self.is_legal(batch):
            return
        self.unknown(batch, through, [outcome])
        if outcome == "applied":
            self.memory.transact(batch)
        self.write_to_both(between, 1 - through)
        self.write_to_both(batch, through, again=True)
        self.memory_agrees_with_disk(through)

    def memory_agrees_with_disk(self, through: int) -> None:
        """What the store remembers of its runs is what a fresh look shows (I9)."""
        store, fresh = self.stores[through], SqliteStore(self.path)
        assert {run_id: fresh.load_run(run_id) for run_id in store._runs} == store._runs
        assert {run_id: fresh.load_head(run_id) for run_id in store._heads} == store._heads
        assert {key: fresh.load_effect(key) for key in store._effects} == store._effects
        fresh.close()


# --- the tests ------------------------------------------------------------------------------------------------------


def explore(machine: type[SideBySide], *, examples: int, steps: int) -> None:
    SEEN.clear()
    # Phase.shrink makes a failure's program short, and takes minutes: add it when there is one
    quiet = {"phases": [Phase.generate], "deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    plan = settings(max_examples=examples, stateful_step_count=steps, derandomize=True, **quiet)
    run_state_machine_as_test(machine, settings=plan)


VERDICTS = """
    Join done | StartRun done exists | ClaimRun took busy ended missing | Append done fenced cancelled missing
    EndRun done fenced missing | CancelRun done ended missing | ParkUnasked done fenced missing
    TakeEffect done took exists busy disagrees absent fenced cancelled missing | RecordEffect done fenced exists missing
    DecideEffect done illegal missing
"""


@pytest.mark.timeout(400)  # half a minute alone, and as much longer as the machine is busy
def test_memory_and_sqlite_cannot_be_told_apart_by_any_history() -> None:
    explore(SideBySide, examples=90, steps=40)
    told = [line.split() for line in VERDICTS.strip().replace("|", "\n").splitlines()]
    wanted: set[tuple[str, str]] = {(write, verdict) for write, *verdicts in told for verdict in verdicts}
    wanted |= {("batch", what) for what in ("illegal move", "retried, was applied", "retried, was not applied")}
    missing = (wanted | set(TRANSITIONS)) - set(SEEN)
    assert not missing, f"a machine that never gets there proves nothing about it: {missing}"


@pytest.mark.timeout(400)
def test_a_retry_after_an_unknown_commit_makes_what_one_commit_makes() -> None:
    explore(InDoubt, examples=40, steps=40)
    assert min(SEEN["unknown", outcome] for outcome in ("applied", "rolled back", "left open")) > 10
