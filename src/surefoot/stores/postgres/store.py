"""The PostgreSQL store: no rules, no sessions, and each batch is one statement that commits by itself.

A batch is decided here, on what is remembered or was just read, and then sent in one message together with the exact
state that it was decided on. The database locks those rows and compares; if anything has moved, nothing is written, and
the batch is read and decided again. So no lock and no transaction ever waits for a client, which may be paused, cut
off, or behind a pooler.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg.pq.abc import PGresult

from ...core.digest import blob_hash
from ...core.effect import Effect, Status
from ...core.errors import CommitUnknown, Damaged, ForkedStore, NotCommitted, StoreError, StoreUnreachable
from ...core.journal import Entry, seal, verify
from ...core.lease import Owner
from ...core.run import Run, RunStatus
from ...core.term import FAILED_OVER, FIRST, Term, as_of
from ...core.writes import RECORDED, Answer, Append, Join, Write
from ..base import Board, Overlay
from ..records import open_effect, open_owner, open_run
from .bell import Bell
from .connection import (
    LOCK_TIMEOUT,
    ONCE_MORE,
    UNIQUE,
    Link,
    Rows,
    Unreachable,
    certainly_not_committed,
    connect_first,
    queries_for,
    read_promise,
    refused,
)
from .desk import PostgresBoard
from .place import read_url
from .presence import Presence, Watch
from .saving import Saving, append_values, decode_text, save_statement
from .schema import check_schema
from .sight import Memory, SeenRun, Sight, changes_records, remember
from .wire import Statement, as_bigints, statement_of

R = TypeVar("R", Run, Effect)
ATTEMPTS_MAX = 40
LOCK_WAITS_MAX = 3
READ_TRIES = 3
OFTEN = (
    *("append", "load_runs", "load_effects", "load_owners", "load_mail", "load_queue"),
    *(
        "settle",
        "begin_term",
        "find_ready",
        "find_ready_of_keys",
        "find_taken",
        "find_owners",
        "next_due",
        "is_gone",
        "tell_time",
    ),
)
"""Statements that each step, claim or look pays for, all of which find their rows by an index without knowing the
values; they are prepared. (A status that is a value is no reason for PostgreSQL to use an index of unfinished runs.)"""
LEASE_BOOT = "postgresql"
"""Leases run on the database's clock, which goes on through restarts and failovers: there is only one boot."""


class PostgresStore:
    """One schema of a database that workers on many machines may share."""

    def __init__(self, url: str, *, schema: str | None = None) -> None:
        """Open the store, making its schema if there is none; raises StoreRefused. See `place.read_url`."""
        self._address = read_url(url, schema)
        self._queries = queries_for(self._address.schema)
        self._often = {name: statement_of(self._queries[name]) for name in OFTEN}
        self._saves: dict[frozenset[str], Statement] = {}
        self.lease_boot = LEASE_BOOT
        self._pid = os.getpid()
        self._closing, self._hurry = threading.Event(), threading.Event()
        self._lock, self._reader_lock = threading.Lock(), threading.Lock()
        self._writer, self._reader = (Link(self._address, self._hurry) for _ in range(2))
        self._memory = Memory()
        self.term, self._timeline = FIRST, ""
        try:
            connect_first(self._writer)
            self.promise = read_promise(self._writer, self._queries)
            check_schema(self._writer, self._queries)
            if not self.promise.pooled:
                self._writer.stay(self._queries["stay"])
                self._reader.stay(self._queries["stay"])
        except psycopg.Error as error:
            self._writer.drop()
            raise refused(self._address, error) from None
        except Unreachable as error:
            raise StoreUnreachable(str(error)) from None
        except BaseException:
            self._writer.drop()
            raise
        self.board: Board = PostgresBoard(self._rows_of)
        presence = Link(self._address, self._hurry)
        self._presence = Presence(presence, self._queries, pooled=self.promise.pooled)
        self._watch = Watch(Link(self._address, self._hurry), self._queries, pooled=self.promise.pooled)
        self._bell = Bell(self._address, self._closing, self._queries, pooled=self.promise.pooled)
        for loss in self.promise.losses():
            logging.getLogger("surefoot").warning("%s: %s", self._address.shown, loss)

    def describe(self) -> list[str]:
        """Where this store is, and what its server promises, in lines for people."""
        return [self._address.shown, *self.promise.lines()]

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedStore(self._pid, os.getpid())
        if self._closing.is_set():
            raise StoreError(f"{self._address.shown} is closed; open Surefoot again to go on")

    # --- writing ----------------------------------------------------------------------------------------------------

    def transact(self, writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        """Decide and save in one commit; durable when it returns. See `stores.base.Store`."""
        self._check_process()
        with self._lock:
            try:
                return self._transact(writes, again)
            except BaseException as error:
                self._memory.forget()
                if again and isinstance(error, NotCommitted):
                    # this attempt changed nothing, but what became of the earlier one has not been read
                    raise CommitUnknown(str(error)) from error
                raise

    def _transact(self, writes: Sequence[Write], again: bool) -> list[Answer]:
        last, waited = "", 0
        for attempt in range(ATTEMPTS_MAX):
            try:
                fresh = again or attempt > 0
                answers = self._append(writes[0]) if len(writes) == 1 and not fresh else None
                answers = answers or self._attempt(writes, again, fresh=fresh)
            except psycopg.Error as error:
                last = self._address.scrub(str(error))
                waited += error.sqlstate == LOCK_TIMEOUT
                if (error.sqlstate not in ONCE_MORE and error.sqlstate != UNIQUE) or waited == LOCK_WAITS_MAX:
                    raise NotCommitted(f"{self._address.shown} refused the write: {last}") from None
            else:
                if answers is not None:
                    return answers
        raise NotCommitted(f"{self._address.shown}: {ATTEMPTS_MAX} attempts met other writers each time; {last}")

    def _attempt(self, writes: Sequence[Write], again: bool, *, fresh: bool) -> list[Answer] | None:
        """The answers, or None if something was not as supposed and nothing was written.

        Raises psycopg.Error only when it is certain that nothing was written.
        """
        if fresh or not self._timeline:
            self._look_at_term()
        if any(isinstance(write, Join) for write in writes):
            self._presence.reappear()
        sight = Sight(self._memory, self._read_to_decide, fresh=fresh)
        sight.prepare(writes)
        overlay = Overlay(sight, again=again, term=self.term)
        try:
            answers = [write.decide(overlay) for write in writes]
        except Exception:
            if sight.guessed:
                return None  # what a wrong guess led to says nothing
            raise
        if sight.rests_on_guesses(overlay):
            return None
        if not (overlay.entries or changes_records(overlay)):
            if again:
                self._send(self._often["settle"], ())
            remember(self._memory, sight, overlay, {}, {})
            return answers
        marked = {owner_id for owner_id in overlay.owners if self._presence.marked(owner_id)}
        saving = Saving(sight, overlay, marked, only_appends={*map(type, writes)} == {Append})
        nums = self._save(saving)
        if nums is None:
            return None
        remember(self._memory, sight, overlay, dict(zip(saving.new_runs, nums, strict=True)), saving.digests)
        if overlay.wakes():
            self._bell.ring()
        return answers

    def _look_at_term(self) -> None:
        """Learn the present term, and begin the next if another server goes on than the one of the last."""
        while True:
            number, noticed_at, lost_since, timeline, unchanged = self._read_to_decide("term", ())[0]
            if unchanged:
                break
            begin = self._often["begin_term"]
            if self._send(begin, begin.write_down((number + 1,))).ntuples and number >= 0:
                logging.getLogger("surefoot").warning("%s: %s", self._address.shown, FAILED_OVER)
        if number != self.term.number:
            self._memory.forget()
        self._timeline = timeline
        self.term = Term(number=number, noticed_at=noticed_at, lost_since=lost_since)

    def _append(self, write: Write) -> list[Answer] | None:
        """The most frequent batch of all, one entry of one remembered run, and its answer.

        None if it is another, or something is not as supposed: nothing was written, and it is decided like any other.
        """
        seen = self._memory.runs.get(write.run_id)
        if seen is None or type(write) is not Append or write.blobs or self.promise.pooled or not self._timeline:
            return None
        answer = write.judge(as_of(seen.run, self.term))
        if answer.verdict not in RECORDED:
            return None
        entry, head = seal(seen.head, write.draft)
        try:
            values = append_values(seen.num, entry, self._timeline)
        except (struct.error, UnicodeEncodeError):
            return None
        if not self._send(self._often["append"], values).command_tuples:
            return None
        self._memory.runs[write.run_id] = SeenRun(seen.num, seen.run, seen.digest, head)
        return [answer]

    def _save(self, saving: Saving) -> list[int] | None:
        groups = saving.groups()
        statement = self._saves.get(groups)
        if statement is None:
            statement = self._saves[groups] = save_statement(self._queries["save"], groups)
        values = statement.write_down(saving.parameters(self._timeline))
        return as_bigints(self._send(statement, values).get_value(0, 0))

    def _send(self, statement: Statement, values: Sequence[bytes]) -> PGresult:
        """What a writing statement answers; its commit has three outcomes (R10).

        psycopg.Error: certainly rolled back. CommitUnknown: anything else, an interrupt and a warning included.
        """
        link = self._writer
        wire = link.fresh_wire()
        try:
            answer = wire.run(statement, values)
        except Unreachable:
            raise
        except psycopg.Error as error:
            if certainly_not_committed(error):
                raise
            link.drop()
            raise CommitUnknown(f"{self._address.shown}: {self._address.scrub(str(error))}") from error
        except BaseException as error:
            link.drop()
            raise CommitUnknown(f"{self._address.shown}: interrupted by {type(error).__name__}") from error
        warning = link.warning()
        if warning:
            raise CommitUnknown(f"{self._address.shown} warned at commit: {warning}")
        return answer

    def _read_to_decide(self, query: str, parameters: Any) -> Rows:
        """Rows that a decision rests on; read again through another connection if this one breaks."""
        return self._read(self._writer, query, parameters)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _read(self, link: Link, query: str, parameters: Any) -> Rows:
        last, often = "", self._often.get(query)
        values = often.write_down(parameters) if often is not None else []
        for _ in range(READ_TRIES):
            try:
                if often is not None:
                    return link.wire().rows(often, values)
                return link.rows(self._queries[query], parameters)
            except psycopg.Error as error:
                last = self._address.scrub(str(error))
                if certainly_not_committed(error) and error.sqlstate not in ONCE_MORE:
                    break
                link.drop()
            except BaseException:
                link.drop()  # its answer may still be on the way
                raise
        raise NotCommitted(f"{self._address.shown} could not be read: {last}")

    def _rows_of(self, query: str, parameters: Any) -> Rows:
        self._check_process()
        with self._reader_lock:
            try:
                return self._read(self._reader, query, parameters)
            except NotCommitted as error:
                raise StoreError(str(error)) from None

    def read_run(self, run_id: str) -> tuple[Run, list[Entry]] | None:
        """A run and its verified journal, from one snapshot."""
        rows = self._rows_of("read_run", {"id": run_id})
        if not rows:
            return None
        if rows[0][0] != -1:
            raise Damaged(f"the journal of run {run_id!r}", "the run has no record")
        run = open_run(run_id, rows[0][5], rows[0][8])
        try:
            entries = [
                Entry(r[0], r[1], r[2], r[3], decode_text(r[4]), r[5], r[6] / 1000, r[7], r[8]) for r in rows[1:]
            ]
        except ValueError as error:
            raise Damaged(f"the journal of run {run_id!r}", str(error)) from error
        head = verify(run_id, entries)
        if run.head and (head.length, head.digest) != (run.length, run.head):
            raise Damaged(f"the journal of run {run_id!r}", f"it ends at entry {head.length}, not at {run.length}")
        return run, entries

    def find_run(self, run_id: str) -> Run | None:
        """A run without its journal."""
        return next((open_run(*row[:1], *row[2:5]) for row in self._rows_of("load_runs", ([run_id],))), None)

    def read_effect(self, key: str) -> Effect | None:
        """One effect by its key."""
        return next((open_effect(*row) for row in self._rows_of("load_effects", ([key],))), None)

    def read_owner(self, owner_id: int) -> Owner | None:
        """One owner by its id."""
        return next((open_owner(*row) for row in self._rows_of("load_owners", ([owner_id],))), None)

    def read_blob(self, name: bytes) -> bytes:
        """A large value by its hash."""
        rows = self._rows_of("read_blob", (name,))
        if not rows or blob_hash(rows[0][0]) != name:
            raise Damaged(f"large value {name.hex()[:12]}", "it is missing or its bytes do not match its hash")
        return rows[0][0]

    def find_runs(self, statuses: Sequence[RunStatus] = (), *, limit: int = 1000) -> list[Run]:
        """Runs in these statuses, newest first."""
        asked = [str(status) for status in statuses]
        rows = self._rows_of("find_runs_in", (asked, limit)) if asked else self._rows_of("find_runs", (limit,))
        return self._as_asked([open_run(*row) for row in rows], asked)

    def find_effects(self, statuses: Sequence[Status] = (), *, run_id: str = "", limit: int = 1000) -> list[Effect]:
        """Effects in these statuses and of this run, newest first."""
        asked = [str(status) for status in statuses]
        if run_id:
            rows = self._rows_of("find_effects_of_run", {"run": run_id, "statuses": asked, "limit": limit})
        else:
            rows = (
                self._rows_of("find_effects_in", (asked, limit)) if asked else self._rows_of("find_effects", (limit,))
            )
        found = self._as_asked([open_effect(*row) for row in rows], asked)
        if run_id and any(effect.run != run_id for effect in found):
            raise Damaged(self._address.shown, "an index leads to another run's effect")
        return found

    def _as_asked(self, found: list[R], statuses: Sequence[str]) -> list[R]:
        """A damaged index may lead to a sound row that was not asked for."""
        if statuses and any(record.status not in statuses for record in found):
            raise Damaged(self._address.shown, "an index leads to a record in another status")
        return found

    # --- presence, time, and the rest -------------------------------------------------------------------------------

    def appear(self, owner_id: int) -> None:
        """Hold this owner's mark, on a connection of its own."""
        self._check_process()
        with self._lock:
            self._presence.appear(owner_id)

    def is_gone(self, owner_id: int) -> bool:
        """True if that owner's mark has certainly been dropped; never behind a pooler."""
        if self._presence.marked(owner_id):
            return False
        try:
            return bool(self._rows_of("is_gone", {"id": str(owner_id), "number": owner_id})[0][0])
        except StoreError:
            return False

    def await_end(self, owner_id: int) -> bool | None:
        """Wait for the end of another process, on a connection of its own; see `stores.base.Watches`."""
        self._check_process()
        ended = self._watch.await_end(owner_id)
        if self._closing.is_set():
            self._watch.close()
        return ended

    def hear(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        """Wake-ups from all processes that use this schema; see `stores.base.Rings`."""
        return self._bell.hear(listener)

    def tell_time(self) -> float:
        """The database's clock: leases of workers on several machines compare by it alone."""
        return float(self._rows_of("tell_time", ())[0][0])

    def check(self) -> list[str]:
        """Read everything once: each record against its digest, each chain, and each row through its index."""
        from .check import check

        return check(self, self._rows_of)

    def wait_no_longer(self) -> None:
        """For a process that has to end: see `stores.base.Waits`."""
        self._hurry.set()

    def close(self) -> None:
        """Close all connections, and so drop the marks; in a forked child nothing is touched."""
        if self._closing.is_set() or os.getpid() != self._pid:
            return
        self._closing.set()
        self._hurry.set()
        with self._lock, self._reader_lock:
            self._presence.vanish()
            self._reader.drop()
            self._writer.drop()
