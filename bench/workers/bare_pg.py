"""The limit on PostgreSQL, as `bare.py` is on SQLite: the same rows by the least code that is still durable.

`group`: one writer thread, one round trip and one commit a batch, rows by unnest. `inline`: a commit a row.
"""

import asyncio
import threading

import psycopg
from bare import ADD_ENTRY, BEGIN_RUN, END_RUN, Bare, Waiting
from protocol import main

SCHEMA = """
CREATE TABLE IF NOT EXISTS run (id bigint PRIMARY KEY, name text UNIQUE, result text);
CREATE TABLE IF NOT EXISTS entry (run bigint, number bigint, value text, PRIMARY KEY (run, number));
"""
GROUPED = {
    BEGIN_RUN: "INSERT INTO run (id, name) SELECT * FROM unnest(%s::bigint[], %s::text[])",
    ADD_ENTRY: "INSERT INTO entry SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[])",
    END_RUN: "UPDATE run SET result = n.result FROM unnest(%s::text[], %s::bigint[]) AS n (result, id) "
    "WHERE run.id = n.id",
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


if __name__ == "__main__":
    main(BarePostgres)
