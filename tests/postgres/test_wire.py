"""What is written down in binary is what the server reads, and comes back as it was."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from surefoot.stores.postgres.wire import Wire, as_bigints, statement_of

VALUES: dict[str, list[Any]] = {
    "bigint": [0, -1, 2**63 - 1, -(2**63)],
    "integer": [0, -1, 2**31 - 1],
    "smallint": [0, -1, 2**15 - 1],
    "double precision": [0.0, -1.5, 1e308, 1800000000.0371],
    "text": ["", "a", "it's", "\N{SNOWMAN}\N{PILE OF POO}", 'x"{},\\'],
    "bytea": [b"", b"\0", bytes(range(256)) * 300],
}


@pytest.mark.parametrize("prepares", [True, False], ids=["prepared", "sent whole"])
@pytest.mark.parametrize("kind", VALUES)
def test_values_and_arrays_arrive_as_they_were(kind: str, prepares: bool, postgres_url: str) -> None:
    one = statement_of(f"SELECT %(value)b::{kind}, %(value)b::{kind} IS NULL")
    many = statement_of(f"SELECT e FROM unnest(%(values)b::{kind}[]) WITH ORDINALITY AS u (e, n) ORDER BY n")
    with psycopg.connect(postgres_url, autocommit=True) as db:
        wire = Wire(db, prepares=prepares)
        assert [wire.rows(one, one.write_down({"value": value})) for value in VALUES[kind]] == [
            [(value, False)] for value in VALUES[kind]
        ]
        assert [row[0] for row in wire.rows(many, many.write_down({"values": VALUES[kind]}))] == VALUES[kind]
        assert wire.rows(many, many.write_down({"values": []})) == []


def test_an_array_of_numbers_is_read_and_nothing_is_nothing(postgres_url: str) -> None:
    back = statement_of("SELECT nullif(%b::bigint[], ARRAY[7::bigint])")
    with psycopg.connect(postgres_url, autocommit=True) as db:
        wire = Wire(db, prepares=True)
        for numbers, expected in (([], []), ([1, -2], [1, -2]), ([7], None)):
            assert as_bigints(wire.run(back, back.write_down((numbers,))).get_value(0, 0)) == expected


@pytest.mark.parametrize(
    ("kind", "value"), [("text", "\ud800"), ("integer", 2**31), ("bigint[]", [2**63]), ("text[]", ["a", "\udfff"])]
)
def test_what_postgresql_cannot_hold_is_refused_before_anything_is_sent(kind: str, value: Any) -> None:
    with pytest.raises(psycopg.DataError):
        statement_of(f"SELECT %b::{kind}").write_down((value,))


def test_an_error_leaves_the_connection_fit_for_the_next_statement(postgres_url: str) -> None:
    fails, works = statement_of("SELECT 1 / %b::integer"), statement_of("SELECT %b::integer")
    with psycopg.connect(postgres_url, autocommit=True) as db:
        wire = Wire(db, prepares=True)
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.run(fails, fails.write_down((0,)))
        assert wire.rows(works, works.write_down((5,))) == [(5,)]
