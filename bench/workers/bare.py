"""The limit, not an engine: the same rows stored by the least code that is still durable.

`group`: whoever waits shares one commit, made by one writer thread, with one wake-up of the event loop per batch.
`inline`: a commit on the caller's own thread, on a WAL that has its full length already, so that a sync overwrites.
No leases, fences, digests, retries, timers or errors: what Surefoot adds is paid for on top of this.
"""

import asyncio
import json
import os
import sqlite3
import threading

from protocol import Engine, body, main

SCHEMA = """
CREATE TABLE IF NOT EXISTS run (id INTEGER PRIMARY KEY, name TEXT UNIQUE, result TEXT);
CREATE TABLE IF NOT EXISTS entry (run INTEGER, number INTEGER, value TEXT, PRIMARY KEY (run, number)) WITHOUT ROWID;
"""
BEGIN_RUN = "INSERT INTO run (id, name) VALUES (?, ?)"
END_RUN = "UPDATE run SET result = ? WHERE id = ?"
ADD_ENTRY = "INSERT INTO entry VALUES (?, ?, ?)"
WAL_PAGES = 4000
Waiting = tuple[str, tuple[object, ...], asyncio.Future[None]]


class Bare(Engine):
    kinds = ("group", "inline")

    def open(self) -> None:
        self.connection = sqlite3.connect(f"{self.folder}/bare.db", isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"wal_autocheckpoint={WAL_PAGES}"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.executescript(SCHEMA)
        wal = f"{self.folder}/bare.db-wal"
        if self.kind == "inline" and os.path.getsize(wal) < WAL_PAGES // 2 * 4096:
            self.lengthen_wal()
        self.run_id = self.connection.execute("SELECT coalesce(max(id), 0) FROM run").fetchone()[0]
        self.loop = asyncio.new_event_loop()
        self.waiting: list[Waiting] = []
        self.wake = threading.Event()
        threading.Thread(target=self.write, daemon=True).start()

    def lengthen_wal(self) -> None:
        run = self.connection.execute
        run("PRAGMA synchronous=OFF")
        run("CREATE TABLE pad (filler)")
        run(f"INSERT INTO pad VALUES (zeroblob({(WAL_PAGES - 200) * 4096}))")
        run("DROP TABLE pad")
        run("PRAGMA wal_checkpoint(RESTART)")
        run("PRAGMA synchronous=FULL")

    def write(self) -> None:
        while self.wake.wait():
            self.wake.clear()
            batch, self.waiting = self.waiting, []
            if batch:
                self.connection.execute("BEGIN IMMEDIATE")
                for sql in (BEGIN_RUN, ADD_ENTRY, END_RUN):
                    if rows := [row for wanted, row, _ in batch if wanted is sql]:
                        self.connection.executemany(sql, rows)
                self.connection.execute("COMMIT")
                self.loop.call_soon_threadsafe(self.acknowledge, batch)

    def acknowledge(self, batch: list[Waiting]) -> None:
        for _, _, future in batch:
            future.set_result(None)

    async def durable(self, sql: str, row: tuple[object, ...]) -> None:
        if self.kind == "inline":
            self.connection.execute(sql, row)
            return
        future: asyncio.Future[None] = self.loop.create_future()
        self.waiting.append((sql, row, future))
        self.wake.set()
        await future

    def find(self, name: str) -> tuple[int | None, list[tuple[str]]]:
        """The run and what it has stored."""
        found = self.connection.execute("SELECT id FROM run WHERE name = ?", (name,)).fetchone()
        if found is None:
            return None, []
        return found[0], self.connection.execute(
            "SELECT value FROM entry WHERE run = ? ORDER BY number", found
        ).fetchall()

    async def run(self, name: str, count: int) -> None:
        run_id, past = self.find(name)
        if run_id is None:
            self.run_id = run_id = self.run_id + 1
            await self.durable(BEGIN_RUN, (run_id, name))
        for number in range(count):
            if number < len(past):
                json.loads(past[number][0])
            else:
                await self.durable(ADD_ENTRY, (run_id, number, json.dumps(body(number))))
        await self.durable(END_RUN, ("null", run_id))

    def sequence(self, name: str, count: int) -> None:
        self.loop.run_until_complete(self.run(name, count))

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        async def all_runs() -> None:
            await asyncio.gather(*(self.run(f"{prefix}-{number}", count) for number in range(runs)))

        self.loop.run_until_complete(all_runs())

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        async def lane(first: int) -> None:
            for number in range(first, runs, lanes):
                await self.run(f"{prefix}-{number}", 0)

        async def all_lanes() -> None:
            await asyncio.gather(*(lane(first) for first in range(lanes)))

        self.loop.run_until_complete(all_lanes())


if __name__ == "__main__":
    main(Bare)
