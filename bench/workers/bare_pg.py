"""The limit on PostgreSQL, as `bare.py` is on SQLite: the same rows by the least code that is still durable.

`group`: one writer thread, one round trip and one commit a batch, rows by unnest. `inline`: a commit a row.

In a fleet, `group` claims with SKIP LOCKED, is told by a notification, and waits for the end of the other workers on an
advisory lock that each holds. No leases, fences, limits or order: a worker that hangs keeps its runs.
"""

import asyncio
import json
import os
import threading

import psycopg
from bare import ADD_ENTRY, BEGIN_RUN, END_RUN, Bare, Waiting
from fleet import note
from protocol import main

SCHEMA = """
CREATE TABLE IF NOT EXISTS run (id bigint PRIMARY KEY, name text UNIQUE, result text);
CREATE TABLE IF NOT EXISTS entry (run bigint, number bigint, value text, PRIMARY KEY (run, number));
CREATE TABLE IF NOT EXISTS queue (
    id bigserial PRIMARY KEY, name text, steps bigint, seconds double precision, worker bigint DEFAULT 0);
CREATE INDEX IF NOT EXISTS free ON queue (id) WHERE worker = 0;
CREATE TABLE IF NOT EXISTS worker (id bigint PRIMARY KEY);
"""
FINISH = "DELETE FROM queue WHERE id = ?"
ENQUEUE = """WITH put AS (INSERT INTO queue (name, steps, seconds) VALUES (%s, %s, %s))
SELECT pg_notify('bare', '')"""
CLAIM = """UPDATE queue SET worker = %s WHERE id IN (
    SELECT id FROM queue WHERE worker = 0 ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id, name, steps, seconds"""
FREE = "WITH freed AS (UPDATE queue SET worker = 0 WHERE worker = %s) SELECT pg_notify('bare', '')"
CONCURRENCY, CLAIMS_MAX, POLL_SECONDS = 100, 50, 0.2
GROUPED = {
    BEGIN_RUN: "INSERT INTO run (id, name) SELECT * FROM unnest(%s::bigint[], %s::text[])",
    ADD_ENTRY: "INSERT INTO entry SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[])",
    END_RUN: "UPDATE run SET result = n.result FROM unnest(%s::text[], %s::bigint[]) AS n (result, id) "
    "WHERE run.id = n.id",
    FINISH: "DELETE FROM queue WHERE id = ANY(%s::bigint[])",
}
ALONE = {statement: statement.replace("?", "%s") for statement in GROUPED}


class BarePostgres(Bare):
    def open(self) -> None:
        self.connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=1)
        self.reader = psycopg.connect(self.url, autocommit=True)
        self.connection.execute(SCHEMA)
        self.run_id = self.connection.execute("SELECT coalesce(max(id), 0) FROM run").fetchone()[0]
        self.loop = asyncio.new_event_loop()
        self.waiting: list[Waiting] = []
        self.wake = threading.Event()
        threading.Thread(target=self.write, daemon=True).start()

    def find(self, name: str) -> tuple[int | None, list[tuple[str]]]:
        found = self.reader.execute("SELECT id FROM run WHERE name = %s", (name,)).fetchone()
        if found is None:
            return None, []
        past = self.reader.execute("SELECT value FROM entry WHERE run = %s ORDER BY number", found).fetchall()
        return found[0], past

    def write(self) -> None:
        while self.wake.wait():
            self.wake.clear()
            batch, self.waiting = self.waiting, []
            if batch:
                with self.connection.pipeline(), self.connection.transaction():
                    for kind, statement in GROUPED.items():
                        if rows := [row for wanted, row, _ in batch if wanted is kind]:
                            self.connection.execute(statement, [list(column) for column in zip(*rows, strict=True)])
                self.loop.call_soon_threadsafe(self.acknowledge, batch)

    async def durable(self, sql: str, row: tuple[object, ...]) -> None:
        if self.kind == "inline":
            self.connection.execute(ALONE[sql], row)
        else:
            await super().durable(sql, row)

    # --- a fleet ------------------------------------------------------------------------------------------------------

    def enqueue(self, name: str, count: int, seconds: float) -> None:
        self.connection.execute(ENQUEUE, (name, count, seconds))

    def serve(self) -> None:
        self.me, self.active = os.getpid(), 0
        self.marks = psycopg.connect(self.url, autocommit=True)
        self.marks.execute("SELECT pg_advisory_lock(%s)", (self.me,))
        self.marks.execute("INSERT INTO worker VALUES (%s)", (self.me,))
        self.rung = asyncio.Event()
        for listen in (self.hear, self.watch):
            threading.Thread(target=listen, daemon=True).start()
        self.loop.run_until_complete(self.work())

    def ring(self) -> None:
        self.loop.call_soon_threadsafe(self.rung.set)

    def hear(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("LISTEN bare")
            for _ in db.notifies():
                self.ring()

    def watch(self) -> None:
        """Wait for the end of each worker that was there when this one came, or comes later, one after the other."""
        with psycopg.connect(self.url, autocommit=True) as db:
            while True:
                found = db.execute("SELECT min(id) FROM worker WHERE id <> %s", (self.me,)).fetchone()
                if found is None or found[0] is None:
                    threading.Event().wait(POLL_SECONDS)
                    continue
                db.execute("SELECT pg_advisory_lock(%s), pg_advisory_unlock(%s)", (found[0], found[0]))
                db.execute("DELETE FROM worker WHERE id = %s", found)
                db.execute(FREE, found)

    async def work(self) -> None:
        while True:
            self.rung.clear()
            slots = min(CONCURRENCY - self.active, CLAIMS_MAX)
            claimed = self.reader.execute(CLAIM, (self.me, slots)).fetchall() if slots else []
            for row in claimed:
                self.active += 1
                self.loop.create_task(self.finish(*row))
            if len(claimed) < slots or not slots:
                try:
                    await asyncio.wait_for(self.rung.wait(), POLL_SECONDS)
                except TimeoutError:
                    continue

    async def finish(self, run_id: int, name: str, count: int, seconds: float) -> None:
        past = self.reader.execute("SELECT value FROM entry WHERE run = %s", (run_id,)).fetchall()
        for number in range(len(past), count):
            value = note(name, number)
            if seconds:
                await asyncio.sleep(seconds)
            await self.durable(ADD_ENTRY, (run_id, number, json.dumps(value)))
        await self.durable(FINISH, (run_id,))
        self.active -= 1
        self.rung.set()


if __name__ == "__main__":
    main(BarePostgres)
