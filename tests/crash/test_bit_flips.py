"""Bit rot: a flipped bit anywhere in a store's files is harmless or noticed, and never a wrong value.

SQLite has no page checksums, so a plain reader takes what a flipped bit left. Here single bits of a real store, with
rows in every table, are flipped in the database file (closed cleanly) and in the write-ahead log (the process was
killed); then everything is read back through the real API, by id, by key, by status and whole.

Two things no digest of a record can show, because there is no record left to check: a flipped key in an index hides its
row from look-ups by that key (SQLite's `integrity_check` sees every such case), and to SQLite a flipped bit in the log
of a killed process looks like the torn end of the log, so that the commits behind it are gone, though nothing is torn.

`python -m pytest -s tests/crash/test_bit_flips.py` prints how the flips ended.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from surefoot.core.effect import OPEN
from surefoot.core.errors import SurefootError
from surefoot.core.run import UNFINISHED
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.powerloss import memory_folder
from tests.crash.sqlite_workload import INLINE_BYTES, work

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("bit_flips")]

NAME, LOG = "flip.db", "flip.db-wal"
FRAME_BYTES, LOG_HEADER_BYTES = 24 + 4096, 32
ROUNDS, FLIPS_PER_TREE, FLIPS_OF_LOG = 4, 200, 600
Question = Callable[[SqliteStore], Any]
Answers = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A store's files, every question one can ask of it, and the answers after each commit (the last: now)."""

    files: dict[str, bytes]
    questions: dict[str, Question]
    history: Sequence[Answers]


@dataclass(frozen=True)
class Problem:
    """An exception in the place of an answer."""

    kind: str
    clear: bool


@dataclass(kw_only=True)
class Endings:
    """How many flips ended how, the first place of each ending, and what `integrity_check` did not see."""

    counts: Counter[str] = field(default_factory=Counter[str])
    places: dict[str, str] = field(default_factory=dict[str, str])
    trees: Counter[str] = field(default_factory=Counter[str])
    hidden_from_integrity_check: int = 0

    def add(self, ending: str, tree: str, place: str) -> None:
        self.counts[ending] += 1
        self.trees[tree] += 1
        self.places.setdefault(ending, f"{tree} {place}")

    def show(self, title: str) -> None:
        counts = ", ".join(f"{ending} {count}" for ending, count in self.counts.most_common())
        print(f"\n{title}: {self.counts.total()} flips in {len(self.trees)} places: {counts}")


# --- asking -----------------------------------------------------------------------------------------------------


def questions_about(store: SqliteStore) -> dict[str, Question]:
    """Every read of the store's API: by id, by key, by status, and whole."""
    asked: dict[str, Question] = {
        "all runs": lambda s: s.find_runs(),
        "unfinished runs": lambda s: s.find_runs(sorted(UNFINISHED)),
        "all effects": lambda s: s.find_effects(),
        "open effects": lambda s: s.find_effects(sorted(OPEN)),
    }
    for run in store.find_runs():
        asked[f"run {run.id}"] = lambda s, name=run.id: s.read_run(name)
        asked[f"effects of {run.id}"] = lambda s, name=run.id: s.find_effects(run_id=name)
        for claim in run.claims:
            asked[f"owner {claim.owner}"] = lambda s, name=claim.owner: s.read_owner(name)
        for entry in (store.read_run(run.id) or (run, []))[1]:
            if entry.value[:1] == b"\0":
                asked[f"value {entry.value[1:].hex()}"] = lambda s, name=entry.value[1:]: s.read_blob(name)
    for effect in store.find_effects():
        asked[f"effect {effect.key}"] = lambda s, name=effect.key: s.read_effect(name)
    return asked


def answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except SurefootError as error:
        return Problem(type(error).__name__, True)
    except Exception as error:
        return Problem(f"{type(error).__name__}: {error}", False)


def answers(folder: Path, files: dict[str, bytes], questions: dict[str, Question]) -> Answers:
    """Put the files there, open the store and ask everything; one entry only if it does not open."""
    for old in folder.glob("*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    store = answer(lambda: SqliteStore(folder / NAME, busy_seconds=0.5))
    if isinstance(store, Problem):
        return {"open": store}
    try:
        return {name: answer(lambda: question(store)) for name, question in questions.items()}  # noqa: B023
    finally:
        store.close()


def ending_of(found: Answers, history: Sequence[Answers]) -> str:
    """The worst that any answer is: wrong, raw error, hidden, reordered, noticed, or else older or unharmed."""
    if found == history[-1]:
        return "unharmed"
    if found in history:
        return "older"
    endings = {_ending_of_one(value, history[-1].get(name)) for name, value in found.items()}
    order = ("wrong", "raw error", "hidden", "reordered", "noticed", "unharmed")
    return next(ending for ending in order if ending in endings)


def _ending_of_one(value: Any, right: Any) -> str:
    match value, right:
        case Problem(clear=clear), _:
            return "noticed" if clear else "raw error"
        case _ if value == right:
            return "unharmed"
        case None, _:
            return "hidden"
        case list(), list() if all(item in right for item in value):
            return "hidden" if len(value) < len(right) else "reordered"
        case (run, entries), (right_run, right_entries) if (
            run == right_run and entries == right_entries[: len(entries)]
        ):
            return "hidden"
    return "wrong"


# --- the stores -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as name:
        yield Path(name)


def commits_of(log: bytes) -> list[int]:
    """Where each commit of a log ends, in bytes: at a frame that has a database size and the log's own salts."""
    ends: list[int] = []
    for start in range(LOG_HEADER_BYTES, len(log), FRAME_BYTES):
        if log[start + 8 : start + 16] != log[16:24]:
            break
        if any(log[start + 4 : start + 8]):
            ends.append(start + FRAME_BYTES)
    return ends


@pytest.fixture(scope="module")
def subjects(folder: Path) -> dict[str, Subject]:
    """One store, as a kill leaves it (all in the log) and as a clean close leaves it (all in the file)."""
    path = folder / NAME
    store = SqliteStore(path)
    work(store, range(ROUNDS), log_bytes=INLINE_BYTES + 3000)
    asked = questions_about(store)
    database, log = path.read_bytes(), path.with_name(LOG).read_bytes()
    store.close()
    closed = {NAME: path.read_bytes()}
    ends = commits_of(log)
    killed = {NAME: database, LOG: log[: ends[-1] + 2 * FRAME_BYTES]}
    history = [answers(folder, {NAME: database, LOG: log[:end]}, asked) for end in ends]
    assert history[-1] == answers(folder, closed, asked)
    return {
        "killed": Subject(files=killed, questions=asked, history=history),
        "closed": Subject(files=closed, questions=asked, history=history[-1:]),
    }


def trees_of(path: Path) -> dict[str, list[int]]:
    """The pages of each table and index, and of the free list, by name."""
    db = sqlite3.connect(path)
    trees: dict[str, list[int]] = {}
    for name, page in db.execute("SELECT name, pageno FROM dbstat"):
        trees.setdefault(name, []).append(page)
    db.close()
    return trees


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture(scope="module")
def of_database(subjects: dict[str, Subject], folder: Path) -> Endings:
    """As many flips in the pages of each table and index, whatever its size."""
    subject, endings, rng = subjects["closed"], Endings(), random.Random(20)
    (folder / NAME).write_bytes(subject.files[NAME])
    for tree, pages in trees_of(folder / NAME).items():
        for _ in range(FLIPS_PER_TREE):
            bit = (rng.choice(pages) - 1) * 4096 * 8 + rng.randrange(4096 * 8)
            files = {NAME: flipped(subject.files[NAME], bit)}
            ending = ending_of(answers(folder, files, subject.questions), subject.history)
            endings.add(ending, tree, f"byte {bit // 8} bit {bit % 8}")
            if ending == "hidden":
                (folder / NAME).write_bytes(files[NAME])
                endings.hidden_from_integrity_check += integrity_of(folder / NAME) == "ok"
    return endings


def integrity_of(path: Path) -> str:
    db = sqlite3.connect(path)
    try:
        return db.execute("PRAGMA integrity_check").fetchone()[0]
    except sqlite3.Error as error:
        return str(error)
    finally:
        db.close()


@pytest.fixture(scope="module")
def of_log(subjects: dict[str, Subject], folder: Path) -> Endings:
    """Flips in the log of a killed process, its header, its frames and the zeros behind them."""
    subject, endings, rng = subjects["killed"], Endings(), random.Random(21)
    log = subject.files[LOG]
    for number in range(FLIPS_OF_LOG):
        bit = rng.randrange(LOG_HEADER_BYTES * 8 if number % 20 == 0 else len(log) * 8)
        found = answers(folder, {**subject.files, LOG: flipped(log, bit)}, subject.questions)
        place = (
            "header"
            if bit < LOG_HEADER_BYTES * 8
            else "zeros"
            if bit >= len(log) * 8 - 2 * FRAME_BYTES * 8
            else "frames"
        )
        endings.add(ending_of(found, subject.history), place, f"byte {bit // 8} bit {bit % 8}")
    return endings


# --- the claims -------------------------------------------------------------------------------------------------


def test_a_flip_in_the_database_file_never_gives_a_wrong_value(of_database: Endings) -> None:
    of_database.show("database file")
    assert of_database.counts["wrong"] == 0, of_database.places
    assert of_database.counts.total() >= 2000
    assert {"runs", "entries", "effects", "blobs", "owners", "entries_of_run"} <= set(of_database.trees)
    assert of_database.counts["noticed"] > 500, "a checker that notices nothing proves nothing"


def test_a_flip_that_hides_a_record_is_seen_by_the_integrity_check(of_database: Endings) -> None:
    assert of_database.hidden_from_integrity_check == 0
    assert of_database.counts["hidden"] < of_database.counts.total() / 20


def test_a_flip_in_the_database_file_is_never_a_raw_error(
    of_database: Endings, subjects: dict[str, Subject], folder: Path
) -> None:
    subject = subjects["closed"]
    for byte in range(2000, 4096, 16):
        files = {NAME: flipped(subject.files[NAME], byte * 8 + 7)}
        of_database.add(ending_of(answers(folder, files, subject.questions), subject.history), "schema", f"byte {byte}")
    assert of_database.counts["raw error"] == 0, of_database.places


def test_a_flip_in_the_log_leaves_what_some_earlier_commit_left_or_is_noticed(of_log: Endings) -> None:
    of_log.show("log of a killed process")
    assert set(of_log.counts) <= {"unharmed", "older", "noticed"}, of_log.places
    assert of_log.counts["older"]


def test_the_same_flips_go_unseen_by_a_plain_reader(subjects: dict[str, Subject], folder: Path) -> None:
    """The negative control: without digests, changed values come back as if nothing had happened."""
    content, rng, silent = subjects["closed"].files[NAME], random.Random(22), 0
    path = folder / NAME
    path.write_bytes(content)
    pages, (right, _) = trees_of(path)["entries"], plain_reading_of(path)
    for _ in range(200):
        bit = (rng.choice(pages) - 1) * 4096 * 8 + rng.randrange(4096 * 8)
        path.write_bytes(flipped(content, bit))
        try:
            rows, integrity = plain_reading_of(path)
        except sqlite3.Error:
            continue
        silent += rows != right and integrity == "ok"
    print(f"\nplain reader: {silent} of 200 flips in the entries gave other rows, and the integrity check said ok")
    assert silent > 50


def plain_reading_of(path: Path) -> tuple[list[Any], str]:
    db = sqlite3.connect(path)
    try:
        rows = db.execute("SELECT * FROM entries ORDER BY num").fetchall()
        return rows, db.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        db.close()
