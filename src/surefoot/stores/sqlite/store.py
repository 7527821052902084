"""The SQLite store: one writer connection, one reader connection, no rules.

What is remembered of live runs between transactions is valid while `PRAGMA data_version` stands still, that is, while
no other connection has committed; so a lone process reads nothing before it writes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ...core.digest import blob_hash
from ...core.dispatch import Queue, Ready, Served
from ...core.effect import OPEN, Effect, Status
from ...core.errors import CommitUnknown, Damaged, ForkedStore, NotCommitted, StoreError
from ...core.journal import Entry, Head, first_head, milliseconds, seal, verify
from ...core.lease import Owner
from ...core.mail import Mail
from ...core.run import UNFINISHED, Run, RunStatus
from ...core.schedule import Schedule
from ...core.writes import RECORDED, Answer, Append, Write
from ..base import Board, Overlay
from ..records import encode, open_effect, open_entries, open_owner, open_run, sealed
from .bell import hear
from .connection import (
    BUSY_SLICE_MS,
    CHECKPOINT_PAGES,
    PRAGMAS,
    QUERIES,
    advice,
    is_busy,
    lengthen_log,
    migrate,
    open_connection,
    refuse_newer,
)
from .desk import SqliteBoard, load_mail, load_queue, load_ready, load_schedule, load_taken, save_desk
from .place import absolute, boot_name
from .presence import Presence

R = TypeVar("R", Run, Effect)
BUSY_SECONDS = 60.0
COMMITS_BEFORE_LENGTHENING = 24
REMEMBERED_MAX = 20_000
CHECKED_BYTES_MAX = 16 << 20
COMMITS_BETWEEN_LOOKS = 4096
LOG_BYTES_ALARM = 64 << 20


class SqliteStore:
    """One file that several processes of one machine may share."""

    def __init__(self, path: str | os.PathLike[str], *, busy_seconds: float = BUSY_SECONDS) -> None:
        """Open or create the file; raises StoreRefused or NotCommitted (locked for `busy_seconds`)."""
        self.path = absolute(path)
        self.lease_boot = boot_name()
        self._busy_seconds = busy_seconds
        self._busy_tries = max(1, round(busy_seconds * 1000 / BUSY_SLICE_MS))
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._reader_lock = threading.Lock()
        self._presence = Presence(self.path)
        left_over = self.log_bytes() > 0
        self._db = self._open()
        self._reader = self._open()
        self._closed = False
        self._closing = threading.Event()
        self._forget(0)
        self._commits = 0
        self._last_keys: dict[str, str] = {}
        self.board: Board = SqliteBoard(self._read_rows)
        if left_over and os.path.getsize(self.path) <= CHECKED_BYTES_MAX:
            self._refuse_damage()

    def _refuse_damage(self) -> None:
        """After an unclean end, look once: a damaged index would hide records, and what is hidden could be repeated."""
        found = self.check()
        if found:
            self.close()
            raise Damaged(self.path, "; ".join(found[:3]))

    def _open(self) -> sqlite3.Connection:
        for _ in range(self._busy_tries):
            try:
                db = open_connection(self.path)
                migrate(db, self.path)
                return db
            except (NotCommitted, sqlite3.OperationalError) as error:
                if isinstance(error, sqlite3.OperationalError) and not is_busy(error):
                    raise StoreError(f"{self.path} could not be opened: {error}") from error
        raise NotCommitted(self._locked())

    def _locked(self) -> str:
        return (
            f"{self.path} was locked by another program for {self._busy_seconds:g} s; nothing was written. "
            "Close the program that holds a write transaction on it."
        )

    def _forget(self, version: int) -> None:
        self._version = version
        self._nums: dict[str, int] = {}
        self._runs: dict[str, Run] = {}
        self._heads: dict[str, Head] = {}
        self._effects: dict[str, Effect] = {}

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedStore(self._pid, os.getpid())
        if self._closed:
            raise StoreError(f"{self.path} is closed; open Surefoot again to go on")

    # --- writing ----------------------------------------------------------------------------------------------

    def transact(self, writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        """Decide and save in one transaction; durable when it returns. See `stores.base.Store`."""
        self._check_process()
        with self._lock:
            if again:
                self._reopen()
            overlay, answers = self._decide(writes, again)
            self._commit()
            if overlay is not None:
                self._remember(overlay)
        return answers

    def _decide(self, writes: Sequence[Write], again: bool) -> tuple[Overlay | None, list[Answer]]:
        db = self._db
        self._begin()
        try:
            version = db.execute(QUERIES["data_version"]).fetchone()[0]
            if version != self._version:
                refuse_newer(db.execute(PRAGMAS["user_version"]).fetchone()[0], self.path)
                self._forget(version)
            if not again and (answers := self._append(writes)) is not None:
                return None, answers
            overlay = Overlay(self, again=again)
            answers = [write.decide(overlay) for write in writes]
            self._save(overlay)
            return overlay, answers
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error | UnicodeDecodeError):
                raise NotCommitted(advice(self.path, error)) from error
            raise

    def _append(self, writes: Sequence[Write]) -> list[Answer] | None:
        """The most frequent batch, of nothing but entries of remembered runs, by their own rule; None for any other."""
        if {*map(type, writes)} != {Append}:
            return None
        entries: list[tuple[str, Entry]] = []
        answers: list[Answer] = []
        heads: dict[str, Head] = {}
        for write in cast("Sequence[Append]", writes):
            run, head = self._runs.get(write.run_id), heads.get(write.run_id) or self._heads.get(write.run_id)
            if write.blobs or run is None or head is None:
                return None
            answer = write.judge(run)
            if answer.verdict not in RECORDED:
                return None
            entry, heads[run.id] = seal(head, write.draft)
            entries.append((run.id, entry))
            answers.append(answer)
        self._db.executemany(QUERIES["append_entry"], self._rows(entries))
        self._heads |= heads  # before the commit: one that does not succeed forgets everything
        return answers

    def _begin(self) -> None:
        # SQLite waits a slice at a time, so that a Ctrl-C is noticed between two
        for _ in range(self._busy_tries):
            try:
                self._db.execute(QUERIES["begin"])
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise NotCommitted(advice(self.path, error)) from error
        raise NotCommitted(self._locked())

    def _commit(self) -> None:
        try:
            self._db.execute(QUERIES["commit"])
        except BaseException as error:
            self._forget(0)
            raise CommitUnknown(advice(self.path, error)) from error
        self._commits += 1
        if self._commits == COMMITS_BEFORE_LENGTHENING:
            self._lengthen()
        elif self._commits % COMMITS_BETWEEN_LOOKS == 0 and self.log_bytes() > LOG_BYTES_ALARM:
            self._alarm()

    def _alarm(self) -> None:
        """A log that only grows costs every reader; an open read transaction keeps it from being emptied."""
        import logging

        logging.getLogger("surefoot").warning(
            "%s-wal has grown to %d MiB: a reader keeps a transaction open, so it cannot be emptied; end that reader",
            self.path,
            self.log_bytes() >> 20,
        )

    def _lengthen(self) -> None:
        try:
            lengthen_log(self._db, self.path, CHECKPOINT_PAGES + CHECKPOINT_PAGES // 8)
        except (OSError, sqlite3.Error):
            return  # only speed is lost

    def _roll_back(self) -> None:
        self._forget(0)
        try:
            if self._db.in_transaction:
                self._db.execute(QUERIES["rollback"])
        except sqlite3.Error:
            self._reopen()

    def _reopen(self) -> None:
        self._forget(0)
        try:
            self._db.close()
        except sqlite3.Error:
            pass  # its state is unknown anyway; the new connection reads what is there
        self._db = self._open()

    def _save(self, overlay: Overlay) -> None:
        db = self._db
        for owner in overlay.owners.values():
            db.execute(QUERIES["save_owner"], (owner.id, *sealed(owner)))
        for run in overlay.runs.values():
            content, digest = sealed(run)
            num = self._num(run.id)
            if num:
                db.execute(QUERIES["update_run"], (str(run.status), content, digest, num))
            else:
                cursor = db.execute(QUERIES["insert_run"], (run.id, str(run.status), run.created_at, content, digest))
                self._nums[run.id] = cursor.lastrowid or 0
        for effect in overlay.effects.values():
            if effect.key in overlay.loaded:
                db.execute(QUERIES["update_effect"], (str(effect.status), *sealed(effect), effect.key))
            else:
                row = (effect.key, effect.run, str(effect.status), effect.created_at, *sealed(effect))
                db.execute(QUERIES["insert_effect"], row)
        if overlay.blobs:
            db.executemany(QUERIES["save_blob"], list(overlay.blobs.items()))
        if overlay.entries:
            db.executemany(QUERIES["append_entry"], self._rows(overlay.entries))
        if overlay.runs or overlay.queues or overlay.letters or overlay.dropped or overlay.schedules:
            save_desk(db, overlay)

    def _rows(self, entries: list[tuple[str, Entry]]) -> list[tuple[Any, ...]]:
        # sqlite3 looks for an adapter for each value that is not exactly int, float, str or bytearray: 1 us a value
        nums = self._nums
        return [
            (
                nums.get(run_id) or self._num(run_id),
                e.seq,
                int(e.kind),
                milliseconds(e.at),
                e.attempts,
                e.slot,
                bytearray(e.args_digest),
                e.preview,
                bytearray(e.value),
                bytearray(e.digest),
            )
            for run_id, e in entries
        ]

    def _num(self, run_id: str) -> int:
        num = self._nums.get(run_id)
        if num is None:
            self.load_run(run_id)
            num = self._nums.get(run_id, 0)
        return num

    def _remember(self, overlay: Overlay) -> None:
        for run in overlay.runs.values():
            if run.status is RunStatus.RUNNING:
                self._runs[run.id] = run
            else:
                for memory in (self._runs, self._heads, self._nums):
                    memory.pop(run.id, None)
        for effect in overlay.effects.values():
            if effect.owner:
                self._effects[effect.key] = effect
            else:
                self._effects.pop(effect.key, None)
        for run_id, head in overlay.heads.items():
            if run_id in self._runs:
                self._heads[run_id] = head
        if len(self._nums) + len(self._effects) > REMEMBERED_MAX:
            self._forget(self._version)

    # --- loading, inside the write transaction --------------------------------------------------------------------

    def load_run(self, run_id: str) -> Run | None:
        """One run as it stands."""
        run = self._runs.get(run_id)
        if run is not None:
            return run
        row = self._db.execute(QUERIES["load_run"], (run_id,)).fetchone()
        if row is None:
            return None
        self._nums[run_id] = row[0]
        run = self._runs[run_id] = open_run(run_id, row[1], row[2])
        return run

    def load_head(self, run_id: str) -> Head:
        """The end of the run's journal."""
        head = self._heads.get(run_id)
        if head is None:
            num = self._num(run_id)
            row = self._db.execute(QUERIES["load_head"], (num,)).fetchone() if num else None
            head = self._heads[run_id] = Head(row[0] + 1, row[1]) if row else first_head(run_id)
        return head

    def load_has_entry(self, run_id: str, slot: str, kind: int) -> bool:
        """True if the journal holds such an entry."""
        return self._db.execute(QUERIES["has_entry"], (self._num(run_id), slot, kind)).fetchone() is not None

    def load_effect(self, key: str) -> Effect | None:
        """One effect as it stands."""
        return self._effects.get(key) or self._effect(self._db, key)

    def load_owner(self, owner_id: int) -> Owner | None:
        """One owner as it stands."""
        return self._owner(self._db, owner_id)

    def load_ready(self, served: Served, now: float, limit: int) -> list[Ready]:
        """Rows that nobody has."""
        return load_ready(self._db, served, now, limit, self._last_keys)

    def load_taken(self, queues: tuple[str, ...]) -> list[Ready]:
        """Rows that somebody has."""
        return load_taken(self._db, queues)

    def load_queue(self, name: str) -> Queue | None:
        """One queue that has limits."""
        return load_queue(self._db, name)

    def load_schedule(self, name: str) -> Schedule | None:
        """One schedule, or None."""
        return load_schedule(self._db, name)

    def load_mail(self, run_id: str) -> list[Mail]:
        """All messages to a run."""
        return load_mail(self._db, run_id)

    def _effect(self, db: sqlite3.Connection, key: str) -> Effect | None:
        row = db.execute(QUERIES["load_effect"], (key,)).fetchone()
        return None if row is None else open_effect(key, row[0], row[1], row[2])

    def _owner(self, db: sqlite3.Connection, owner_id: int) -> Owner | None:
        row = db.execute(QUERIES["load_owner"], (owner_id,)).fetchone()
        return None if row is None else open_owner(owner_id, row[0], row[1])

    # --- reading --------------------------------------------------------------------------------------------------

    def _rows_of(self, query: str, parameters: tuple[Any, ...], read: Callable[[Any], list[Any]] = list) -> list[Any]:
        try:
            return read(self._reader.execute(QUERIES[query], parameters))
        except UnicodeDecodeError as error:
            raise Damaged(self.path, f"stored text is not text ({error})") from error
        except sqlite3.DatabaseError as error:
            if (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise Damaged(self.path, str(error)) from error
            raise StoreError(advice(self.path, error)) from error

    def _read_rows(self, query: str, parameters: tuple[Any, ...]) -> list[Any]:
        self._check_process()
        with self._reader_lock:
            return self._rows_of(query, parameters)

    def read_run(self, run_id: str) -> tuple[Run, list[Entry]] | None:
        """A run and its verified journal, from one snapshot."""
        self._check_process()
        with self._reader_lock:
            self._rows_of("begin_read", ())
            try:
                row = next(iter(self._rows_of("load_run", (run_id,))), None)
                entries = [] if row is None else self._rows_of("read_entries", (row[0],), open_entries)
            except TypeError as error:
                raise Damaged(f"the journal of run {run_id!r}", str(error)) from error
            finally:
                self._rows_of("commit", ())
        if row is None:
            return None
        run = open_run(run_id, row[1], row[2])
        try:
            head = verify(run_id, entries)
        except (TypeError, ValueError) as error:
            raise Damaged(f"the journal of run {run_id!r}", str(error)) from error
        if run.head and (head.length, head.digest) != (run.length, run.head):
            raise Damaged(f"the journal of run {run_id!r}", f"it ends at entry {head.length}, not at {run.length}")
        return run, entries

    def find_run(self, run_id: str) -> Run | None:
        """A run without its journal."""
        self._check_process()
        with self._reader_lock:
            row = next(iter(self._rows_of("load_run", (run_id,))), None)
        return None if row is None else open_run(run_id, row[1], row[2])

    def read_effect(self, key: str) -> Effect | None:
        """One effect by its key."""
        self._check_process()
        with self._reader_lock:
            row = next(iter(self._rows_of("load_effect", (key,))), None)
        return None if row is None else open_effect(key, row[0], row[1], row[2])

    def read_owner(self, owner_id: int) -> Owner | None:
        """One owner by its id."""
        self._check_process()
        with self._reader_lock:
            row = next(iter(self._rows_of("load_owner", (owner_id,))), None)
        return None if row is None else open_owner(owner_id, row[0], row[1])

    def read_blob(self, name: bytes) -> bytes:
        """A large value by its hash."""
        self._check_process()
        with self._reader_lock:
            rows = self._rows_of("read_blob", (name,))
        if not rows or blob_hash(rows[0][0]) != name:
            raise Damaged(f"large value {name.hex()[:12]}", "it is missing or its bytes do not match its hash")
        return rows[0][0]

    def find_runs(self, statuses: Sequence[RunStatus] = (), *, limit: int = 1000) -> list[Run]:
        """Runs in these statuses, newest first."""
        self._check_process()
        with self._reader_lock:
            if statuses and UNFINISHED.issuperset(statuses):
                rows = self._rows_of("find_unfinished_runs", (encode(statuses).decode(), limit))
            else:
                rows = self._rows_of("find_runs", (encode(statuses).decode(),) * 2 + (limit,))
        return self._as_asked([open_run(row[0], row[1], row[2], row[3]) for row in rows], statuses)

    def find_effects(self, statuses: Sequence[Status] = (), *, run_id: str = "", limit: int = 1000) -> list[Effect]:
        """Effects in these statuses and of this run, newest first."""
        self._check_process()
        with self._reader_lock:
            named = encode(statuses).decode()
            if run_id:
                rows = self._rows_of("find_effects_of_run", (run_id, named, named, limit))
            elif statuses and OPEN.issuperset(statuses):
                rows = self._rows_of("find_open_effects", (named, limit))
            else:
                rows = self._rows_of("find_effects", (named, named, limit))
        found = self._as_asked([open_effect("", row[0], row[1], row[2]) for row in rows], statuses)
        if run_id and any(effect.run != run_id for effect in found):
            raise Damaged(self.path, "an index leads to another run's effect")
        return found

    def _as_asked(self, found: list[R], statuses: Sequence[str]) -> list[R]:
        """A damaged index may lead to a sound row that was not asked for."""
        if statuses and any(record.status not in statuses for record in found):
            raise Damaged(self.path, "an index leads to a record in another status")
        return found

    # --- presence -------------------------------------------------------------------------------------------------

    def appear(self, owner_id: int) -> None:
        """Hold this owner's mark."""
        self._check_process()
        self._presence.appear(owner_id)

    def is_gone(self, owner_id: int) -> bool:
        """True if that owner's mark has been dropped."""
        return self._presence.is_gone(owner_id)

    def hear(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        """Wake-ups from other processes; see `stores.base.Rings`."""
        return hear(lambda: open_connection(self.path), self._closing, listener)

    def check(self) -> list[str]:
        """SQLite's integrity check: pages, and indexes against tables."""
        self._check_process()
        with self._reader_lock:
            try:
                rows = self._reader.execute(PRAGMAS["integrity"]).fetchall()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                return [str(error)]
        return [] if rows == [("ok",)] else [str(row[0]) for row in rows]

    def log_bytes(self) -> int:
        """Size of the write-ahead log; over 64 MiB a reader is holding up its checkpoints."""
        try:
            return os.path.getsize(f"{self.path}-wal")
        except OSError:  # the last one to close it took it away, or there never was one
            return 0

    def close(self) -> None:
        """Close both connections and drop the marks; in a forked child nothing is touched."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._closing.set()
        with self._lock, self._reader_lock:
            self._presence.vanish()
            self._reader.close()
            self._db.close()
