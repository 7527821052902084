"""The statements that every step and every claim pay for, sent without a cursor: prepared once a connection, and all
values in PostgreSQL's binary format.

A cursor parses, plans and adapts anew each time, which costs more than what an append does on the server. A prepared
statement is named by the hash of its text, so that whoever finds one under that name, behind a pooler that nobody
noticed, finds the same statement or none; none is answered by sending the text along, from then on.
"""

from __future__ import annotations

import re
import select
import struct
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import Any

import msgspec
import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

INTERRUPTIBLE_MS = 100
BINARY = 1
PLACE = re.compile(
    r"%(?:\((?P<name>\w+)\))?b::(?P<kind>bigint|integer|smallint|boolean|text|bytea|double precision)(?P<array>\[\])?"
)
GOOD = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})
_READ = select.POLLIN | select.POLLERR | select.POLLHUP
_length = struct.Struct(">i").pack


# --- values -------------------------------------------------------------------------------------------------------


def _packed(code: str) -> Callable[[Any], bytes]:
    return struct.Struct(">" + code).pack


SCALARS: dict[str, Callable[[Any], bytes]] = {
    "bigint": _packed("q"),
    "integer": _packed("i"),
    "smallint": _packed("h"),
    "double precision": _packed("d"),
    "text": str.encode,
    "bytea": bytes,
}
LOADERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda value: value == b"\x01",
    20: lambda value: _bigint(value)[0],
    21: lambda value: _smallint(value)[0],
    23: lambda value: _integer(value)[0],
    25: bytes.decode,
    701: lambda value: _double(value)[0],
}
"""From the types that our statements answer, by their OIDs; whatever else is left in binary."""
_bigint, _integer, _smallint, _double = (struct.Struct(">" + code).unpack for code in "qihd")
FIXED = {
    "bigint": (20, 8, "q"),
    "integer": (23, 4, "i"),
    "smallint": (21, 2, "h"),
    "boolean": (16, 1, "?"),
    "double precision": (701, 8, "d"),
}
VARIABLE = {"bytea": 17, "text": 25}


def array(kind: str, values: Sequence[Any]) -> bytes:
    """An array of one dimension without NULL: its shape and type, then each value behind its size."""
    count = len(values)
    fixed = FIXED.get(kind)
    if fixed is not None:
        oid, size, code = fixed
        items = chain.from_iterable((size, value) for value in values)
        return struct.pack(">iiIii" + f"i{code}" * count, 1, 0, oid, count, 1, *items)
    parts = [struct.pack(">iiIii", 1, 0, VARIABLE[kind], count, 1)]
    for value in values if kind == "bytea" else map(str.encode, values):
        parts += (_length(len(value)), value)
    return b"".join(parts)


def as_bigints(value: bytes | None) -> list[int] | None:
    """The numbers of a bigint[] in binary, or None for NULL."""
    if value is None:
        return None
    (dimensions,) = struct.unpack_from(">i", value)
    if not dimensions:
        return []
    (count,) = struct.unpack_from(">i", value, 12)
    return list(struct.unpack_from(">" + "iq" * count, value, 20)[1::2])


class Statement(msgspec.Struct, frozen=True):
    """One statement with places $1, $2 and so on, each followed by its type; `writers` put a value of it in binary."""

    name: bytes
    text: bytes
    fields: tuple[str, ...]
    writers: tuple[Callable[[Any], bytes], ...]
    formats: tuple[int, ...]

    def write_down(self, parameters: dict[str, Any] | Sequence[Any]) -> list[bytes]:
        """The parameters in binary, by their names or in their order; DataError for what PostgreSQL cannot hold."""
        values: Sequence[Any] = (
            [parameters[name] for name in self.fields] if isinstance(parameters, dict) else parameters
        )
        try:
            return [write(value) for write, value in zip(self.writers, values, strict=True)]
        except (struct.error, UnicodeEncodeError) as error:
            raise psycopg.DataError(f"a value that PostgreSQL cannot hold: {error}") from None


def statement_of(query: str) -> Statement:
    """A statement with `%b::type` or `%(name)b::type` at each place; a name that comes again is the same place."""
    fields: list[str] = []
    writers: list[Callable[[Any], bytes]] = []

    def number(found: re.Match[str]) -> str:
        name, kind = found["name"] or f"{len(fields)}", found["kind"]
        if name not in fields:
            fields.append(name)
            writers.append(partial(array, kind) if found["array"] else SCALARS[kind])
        return f"${fields.index(name) + 1}::{kind}{found['array'] or ''}"

    text = PLACE.sub(number, query).encode()
    name = b"surefoot_" + blake2b(text, digest_size=16).hexdigest().encode()
    return Statement(name, text, tuple(fields), tuple(writers), (BINARY,) * len(fields))


# --- sending ------------------------------------------------------------------------------------------------------


class Wire:
    """Sends statements on one connection, and waits in short pieces, so that an interrupt is never far."""

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool) -> None:
        """`prepares`: the connection keeps its session, so that a statement may be prepared in it."""
        self._connection = connection.pgconn
        self._prepares = prepares
        self._prepared: set[bytes] = set()
        self._poll = select.poll()
        self._poll.register(connection.pgconn.socket, _READ)

    def is_silent(self) -> bool:
        """True if the server has said nothing of which nobody knows yet, its end included; asks nobody."""
        return not self._poll.poll(0)

    def rows(self, statement: Statement, values: Sequence[bytes]) -> list[tuple[Any, ...]]:
        """All rows that it answers; raises psycopg.Error."""
        result = self.run(statement, values)
        count, get = result.ntuples, result.get_value
        columns: list[list[Any]] = []
        for column in range(result.nfields):
            found = [get(row, column) for row in range(count)]
            load = LOADERS.get(result.ftype(column))
            columns.append(found if load is None else [None if value is None else load(value) for value in found])
        return list(zip(*columns, strict=True))

    def run(self, statement: Statement, values: Sequence[bytes]) -> pq.abc.PGresult:
        """What it answers, its values in binary; raises psycopg.Error."""
        if self._prepares:
            try:
                return self._run_prepared(statement, values)
            except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement):
                self._prepares = False  # a pooler gave another session, where nothing has been done
        self._connection.send_query_params(statement.text, values, None, statement.formats, BINARY)
        return self._result()

    def _run_prepared(self, statement: Statement, values: Sequence[bytes]) -> pq.abc.PGresult:
        if statement.name not in self._prepared:
            self._connection.send_prepare(statement.name, statement.text)
            self._result()
            self._prepared.add(statement.name)
        self._connection.send_query_prepared(statement.name, values, statement.formats, BINARY)
        return self._result()

    def _result(self) -> pq.abc.PGresult:
        """The result of what was sent; of several, which only an error brings, the last."""
        connection = self._connection
        while connection.flush():
            self._poll.modify(connection.socket, _READ | select.POLLOUT)
            try:
                ready = self._poll.poll(INTERRUPTIBLE_MS)
            finally:
                self._poll.modify(connection.socket, _READ)
            if ready and ready[0][1] & _READ:
                connection.consume_input()
        last: pq.abc.PGresult | None = None
        while (result := self._next(last)) is not None:
            last = result
        if last is None:
            raise psycopg.OperationalError("the server gave no answer")
        if last.status not in GOOD:
            raise error_from_result(last)
        return last

    def _next(self, last: pq.abc.PGresult | None) -> pq.abc.PGresult | None:
        connection = self._connection
        try:
            while connection.is_busy():
                if self._poll.poll(INTERRUPTIBLE_MS):
                    connection.consume_input()
        except psycopg.Error:
            if last is None:
                raise
            return None  # the server said why before it cut the connection, and that is the answer
        return connection.get_result()
