"""Power loss: no acknowledged commit of the real store is lost, whatever the disk was doing.

Real workflows run on a real `SqliteStore`; every statement of its writing connection is noted with its parameters and
replayed through the recording VFS of `surefoot.testing.powerloss`, which then cuts the power everywhere. Three stories:
the birth of a store (an empty folder, the migration, a log that grows), its life (more than a hundred commits on a log
of full length, with zeros and stale frames behind the valid ones, checkpoints, and the closing), and the lengthening of
the log. Two numbers differ from a user's store, so that checkpoints fall among the commits: the log is 144 pages long
and is copied back after 30 pages; a user's has over a thousand.

`python -m pytest -s tests/crash/test_power_loss.py` prints the figures.
"""

from __future__ import annotations

import importlib.util
import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from surefoot.core.digest import blob_hash
from surefoot.core.errors import Damaged
from surefoot.core.journal import Entry, verify
from surefoot.core.lease import Owner
from surefoot.core.writes import Join
from surefoot.stores.records import open_effect, open_owner, open_run
from surefoot.stores.sqlite import store as sqlite_store
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.crash_disk import Asked, Medium, Walk, cuts
from surefoot.testing.powerloss import (
    NAME,
    Content,
    Recording,
    Report,
    Statement,
    crash_images,
    explore,
    memory_folder,
    record,
)
from tests.crash.sqlite_workload import INLINE_BYTES, work

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("apsw") is None, reason="needs apsw (pip install surefoot[dev])"),
    pytest.mark.timeout(900),
]

READS = (
    "SELECT num, id, status, created_at, record, digest FROM runs ORDER BY num",
    "SELECT run, seq, kind, slot, args_digest, preview, value, at_ms, attempts, digest, num FROM entries ORDER BY num",
    "SELECT num, key, run, status, created_at, record, digest FROM effects ORDER BY num",
    "SELECT hash, content FROM blobs ORDER BY hash",
    "SELECT id, record, digest FROM owners ORDER BY id",
    "SELECT num, run, queue, workflow, version, key, priority, since, due_at, owner, asleep FROM queue ORDER BY num",
    "SELECT name, record, digest FROM queues ORDER BY name",
    "SELECT num, run, id, record, digest FROM mail ORDER BY num",
    "SELECT name, record, digest FROM schedules ORDER BY name",
    "SELECT type, name, sql FROM sqlite_schema ORDER BY name",
)
WAL_FULL = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", "PRAGMA wal_autocheckpoint=30")
FULL_LENGTH_PAGES = 128
BIRTH_COMMITS, LIFE_COMMITS = 7, 104
OWNER = Owner(id=1, pid=1, host="h", boot="b", started_at=0.0, lease_until=0.0)


@dataclass(frozen=True, kw_only=True)
class Story:
    """What a real store said to its database, and its files when the log had got its full length."""

    birth: list[Statement]
    life: list[Statement]
    files: dict[str, bytes]
    before_lengthening: dict[str, bytes]
    after_lengthening: dict[str, bytes]
    content: Content


class NotedConnection(sqlite3.Connection):
    """Python's own connection, with a note of every statement and its parameters as they were given.

    (A trace callback would not do: SQLite writes floats into its expanded SQL with 15 digits.)
    """

    made: list[NotedConnection]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.statements: list[Statement] = []
        self.made.append(self)

    def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        self.statements.append((sql, tuple(parameters)))
        return super().execute(sql, parameters)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        self.statements += [(sql, tuple(row)) for row in rows]
        return super().executemany(sql, rows)


def files_of(path: Path) -> dict[str, bytes]:
    """The database and its log, as a crash of the process would leave them."""
    found = {NAME: path, f"{NAME}-wal": path.with_name(path.name + "-wal")}
    return {name: file.read_bytes() for name, file in found.items()}


def content_of(path: Path) -> Content:
    """What the SQLite of this Python finds in the file."""
    db = sqlite3.connect(path)
    try:
        return tuple(tuple(db.execute(read)) for read in READS)
    finally:
        db.close()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def story(folder: Path) -> Story:
    """Run the workload on a real store once."""
    path, lengths = folder / "agents.db", {}
    real_lengthen = sqlite_store.lengthen_log

    def lengthen(db: sqlite3.Connection, where: Path, pages: int) -> None:
        lengths["before"] = files_of(path)
        real_lengthen(db, where, pages)
        lengths["after"] = files_of(path)

    with pytest.MonkeyPatch.context() as patch:
        real_connect = sqlite3.connect
        NotedConnection.made = []
        patch.setattr(sqlite3, "connect", lambda *a, **options: real_connect(*a, factory=NotedConnection, **options))
        patch.setattr(sqlite_store, "CHECKPOINT_PAGES", FULL_LENGTH_PAGES)
        patch.setattr(sqlite_store, "lengthen_log", lengthen)
        store = SqliteStore(path)
        noted = NotedConnection.made[0].statements
        work(store, range(1))
        life_begins, files, rounds = len(noted), files_of(path), 1
        while sum(sql == "COMMIT" for sql, _ in noted[life_begins:]) < LIFE_COMMITS:
            work(store, range(rounds, rounds + 1), log_bytes=INLINE_BYTES + 3000 if rounds == 2 else 600)
            rounds += 1
        store.close()
    ends = [number for number, (sql, _) in enumerate(noted, 1) if sql == "COMMIT"]
    return Story(
        birth=noted[: ends[BIRTH_COMMITS - 1]],
        life=noted[life_begins:],
        files=files,
        before_lengthening=lengths["before"],
        after_lengthening=lengths["after"],
        content=content_of(path),
    )


@pytest.fixture(scope="module")
def life(story: Story) -> Recording:
    """Everything that SQLite asked of the disk after the log had its full length."""
    return record(story.life, base=story.files, reads=READS, settings=WAL_FULL)


@pytest.fixture(scope="module")
def birth(story: Story) -> Recording:
    """Everything that SQLite asked of an empty folder: the migration, the first six commits, the closing."""
    return record(story.birth, base={}, reads=READS)


def verdict_of_the_core(content: Content) -> str | None:
    """Ask the functions that read a user's store: each record's digest, each run's chain, each large value's hash."""
    runs, entries, effects, blobs, owners, *_ = content
    if runs is None or entries is None or effects is None or blobs is None or owners is None:
        return None
    try:
        for num, run_id, status, _, body, sealed_as in runs:
            run = open_run(run_id, body, sealed_as, status)
            rows = sorted(row[1:10] for row in entries if row[0] == num)
            head = verify(run_id, [Entry(*row[:6], row[6] / 1000, *row[7:]) for row in rows])
            if run.head and (run.head, run.length) != (head.digest, head.length):
                return f"the journal of {run_id} does not end where its run says"
        for _, key, _, status, _, body, sealed_as in effects:
            open_effect(key, body, sealed_as, status)
        for owner_id, body, sealed_as in owners:
            open_owner(owner_id, body, sealed_as)
    except Damaged as error:
        return str(error)
    return next((f"large value {name.hex()}" for name, body in blobs if blob_hash(body) != name), None)


def show(title: str, recording: Recording, report: Report) -> None:
    entries = len(recording.contents[-1][1] or ())
    states = f"{report.states:,}" if report.states < 10**9 else f"10^{len(str(report.states)) - 1}"
    print(
        f"\n{title}: {report.commits} commits ({entries} entries), {report.cuts} cuts "
        f"({report.cuts - report.sampled_cuts} exhaustive), {states} states by {report.openings:,} recoveries; "
        f"violations: {report.kinds() or 'none'}, acknowledged commits lost at worst: {report.commits_lost_max}"
    )


# --- the recording is the store's own work ----------------------------------------------------------------------


def test_the_replay_leaves_what_the_real_store_left(story: Story, life: Recording, birth: Recording) -> None:
    assert life.contents[-1] == story.content
    assert life.commit_count >= 100
    assert life.commit_count <= sum(sql == "COMMIT" for sql, _ in story.life), "some commits change nothing"
    assert birth.commit_count == BIRTH_COMMITS - 1, "all but the first, which only reads whose file it is"


def test_the_queries_read_every_table_and_every_column(story: Story) -> None:
    schema = story.content[-1] or ()
    db = sqlite3.connect(":memory:")
    for _, _, sql in schema:
        if sql:
            db.execute(sql)
    for table in (name for kind, name, _ in schema if kind == "table"):
        columns = {row[0] for row in db.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        (read,) = (read for read in READS if f"FROM {table} " in read)
        assert set(read.split("FROM")[0].removeprefix("SELECT ").replace(" ", "").split(",")) == columns


def test_the_life_has_checkpoints_and_stale_frames_behind_the_valid_ones(life: Recording) -> None:
    asked = [event for event in life.events if isinstance(event, Asked)]
    assert sum(event.verb == "sync" and event.name == NAME for event in asked) >= 3
    restarts = [event for event in asked if event.name == f"{NAME}-wal" and event.verb == "write" and not event.offset]
    assert len(restarts) >= 2, "after a checkpoint the log starts anew, over its old frames"
    assert not any(event.name == f"{NAME}-wal" and event.verb == "truncate" for event in asked)


# --- the proof --------------------------------------------------------------------------------------------------


def test_no_power_cut_loses_an_acknowledged_commit(life: Recording) -> None:
    report = explore(life, verify=verdict_of_the_core)
    show("life", life, report)
    assert report.violations == []
    assert report.sampled_cuts == 0 and report.commits >= 100
    assert report.survivals >= report.commits


def test_no_power_cut_during_the_birth_of_a_store_loses_an_acknowledged_commit(birth: Recording) -> None:
    report = explore(birth, verify=verdict_of_the_core, openings_max=60_000)
    show("birth", birth, report)
    assert report.violations == []
    # the first commit makes every table at once: its pages can be lost in more ways than can be tried one by one
    assert report.sampled_cuts <= 1 and report.cuts >= 20


def test_no_power_cut_while_the_log_is_lengthened_loses_an_acknowledged_commit(story: Story) -> None:
    log = f"{NAME}-wal"
    before, after = story.before_lengthening[log], story.after_lengthening[log]
    assert after.startswith(before) and len(after) > len(before) and not any(after[len(before) :])
    begun = record([], base=story.before_lengthening, reads=READS, settings=WAL_FULL)
    zeros = Asked(verb="write", name=log, offset=len(before), content=after[len(before) :])
    recording = replace(begun, events=(zeros, Asked(verb="sync", name=log)))
    report = explore(recording, verify=verdict_of_the_core)
    show("lengthening", recording, report)
    assert report.violations == [] and report.cuts == 1
    assert report.openings == report.states > 100, "a file that grew by zeros may end with any sector"


def test_a_second_power_cut_after_the_recovery_from_the_first_loses_nothing_either(
    story: Story, life: Recording
) -> None:
    """The log then continues over the torn frames of the commit that was cut off."""
    torn = [
        (files, cut.acked)
        for files, cut in crash_images(life, count_per_cut=1, seed=5)
        if cut.started > cut.acked and files[f"{NAME}-wal"] != life.base[f"{NAME}-wal"]
    ]
    openings = 0
    for files, acked in random.Random(5).sample(torn, 6):
        found = record([], base=files, reads=READS, settings=WAL_FULL).contents[0]
        done = life.contents.index(found)
        assert done >= acked
        again = story.life[life.ends[done] : life.ends[min(done + 2, life.commit_count)]]
        second = record(again, base=files, reads=READS, settings=WAL_FULL)
        report = explore(second, verify=verdict_of_the_core)
        assert report.violations == [] and report.commits == min(2, life.commit_count - done)
        openings += report.openings
    print(f"\nsecond cut: 6 stories of 2 commits, {openings} recoveries, no violation")


# --- the same with the SQLite and the store that users have -----------------------------------------------------


def test_the_real_store_opens_what_a_power_cut_left_and_goes_on(
    life: Recording, birth: Recording, folder: Path
) -> None:
    counts: Counter[str] = Counter()
    for title, recording, count in (("life", life, 2), ("birth", birth, 12)):
        for number, (files, cut) in enumerate(crash_images(recording, count_per_cut=count, seed=11)):
            path = folder / f"{title}-{number}" / NAME
            path.parent.mkdir()
            for name, content in files.items():
                path.with_name(name).write_bytes(content)
            store = SqliteStore(path)
            journals = {run.id: (store.read_run(run.id) or (run, []))[1] for run in store.find_runs()}
            store.find_effects()
            store.transact([Join(owner=OWNER)])
            store.close()
            found = content_of(path)[:4]  # owners, the fifth, were just written to
            promised = recording.contents[cut.acked : cut.started + 1]  # a missing table has been made, and is empty
            assert found in [tuple(rows or () for rows in content[:4]) for content in promised]
            assert sum(map(len, journals.values())) == len(found[1] or ())
            shutil.rmtree(path.parent)
            counts[title] += 1
    print(f"\nopened by the real store (SQLite {sqlite3.sqlite_version}): {dict(counts)} states, no violation")
    assert counts["life"] > 200 and counts["birth"] > 100


# --- the checker catches what it is there for -------------------------------------------------------------------


def test_a_disk_whose_syncs_lie_is_caught_at_the_first_commit(life: Recording) -> None:
    report = explore(
        life, lying_sync=lambda number: True, only=lambda cut: cut.acked == cut.started, stop_at_first=True
    )
    show("every sync lies", life, report)
    assert report.kinds() == {"lost": 1}
    assert report.openings <= 3


def test_a_sync_that_lies_once_is_caught_at_every_commit(life: Recording) -> None:
    """One commit's syncs do nothing, all others are honest; cut right after that commit was acknowledged."""
    caught = number = 0
    syncs: list[range] = []
    begun = 0
    for event in life.events:
        if isinstance(event, Asked):
            number += event.verb.startswith("sync")
        elif event.started > event.acked:
            begun = number
        else:
            syncs.append(range(begun, number))
    for acked, lies in enumerate(syncs, 1):
        report = explore(
            life, lying_sync=lies.__contains__, only=lambda cut: cut.acked == cut.started, stop_at_first=True
        )
        caught += report.kinds() == {"lost": 1} and report.violations[0].acked == acked
    print(f"\none commit's sync lies: caught {caught} of {len(syncs)}")
    assert caught == len(syncs) == life.commit_count


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("WAL, synchronous=NORMAL", ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL")),
        ("Python's default: rollback journal, FULL", ("PRAGMA journal_mode=DELETE", "PRAGMA synchronous=FULL")),
    ],
)
def test_another_configuration_loses_an_acknowledged_commit(
    story: Story, title: str, settings: tuple[str, ...]
) -> None:
    recording = record(story.life[:200], base=story.files, reads=READS, settings=settings)
    report = explore(recording, stop_at_first=True)
    show(title, recording, report)
    assert report.kinds() == {"lost": 1}


def test_a_database_that_is_never_synced_is_found_torn_or_damaged(story: Story) -> None:
    settings = ("PRAGMA journal_mode=DELETE", "PRAGMA synchronous=OFF")
    recording = record(story.life[:60], base=story.files, reads=READS, settings=settings)
    report = explore(recording, openings_max=10, sample_count=200)
    show("never synced", recording, report)
    assert report.kinds().keys() & {"torn", "damaged", "unreadable"} and report.kinds()["lost"]


def test_a_changed_value_under_a_good_checksum_of_sqlite_is_refused_by_the_chain(life: Recording) -> None:
    content = list(life.contents[-1])
    entries = list(content[1] or ())
    entries[40] = (*entries[40][:6], entries[40][6] + b" ", *entries[40][7:])
    content[1] = tuple(entries)
    assert verdict_of_the_core(life.contents[-1]) is None
    assert "do not match its digest" in (verdict_of_the_core(tuple(content)) or "")


def test_choosing_late_finds_what_building_every_state_finds(life: Recording, folder: Path) -> None:
    """For small cuts: as many states keep the commit under way, whether each is built in full or chosen when read."""
    compared = 0
    for cut in cuts(life.base, life.events):
        if not (cut.started > cut.acked and 2 < cut.state_count <= 600):
            continue
        kept, walk, more = 0, Walk(), True
        while more:
            for name, content in Medium(cut, walk).files().items():
                (folder / name).write_bytes(content)
            more = walk.advance()
            found = content_of(folder / NAME)
            assert found in life.contents[cut.acked : cut.started + 1]
            kept += found == life.contents[cut.started]
            for name in (NAME, f"{NAME}-wal", f"{NAME}-shm"):
                (folder / name).unlink(missing_ok=True)
        report = explore(life, only=cut.__eq__)
        assert (report.cuts, report.survivals) == (1, kept)
        assert 2 < report.openings <= report.states
        compared += 1
        if compared == 3:
            break
    assert compared == 3
