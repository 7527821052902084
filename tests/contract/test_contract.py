"""The contract that ships, on every store that we ship."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from surefoot.core.errors import Damaged
from surefoot.stores.base import Store
from surefoot.stores.memory import MemoryStore
from surefoot.stores.postgres.store import PostgresStore
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing import contract
from surefoot.testing.contract import CHECKS, Check
from surefoot.testing.contract_desk import DESK_CHECKS
from surefoot.testing.contract_fence import FENCE_CHECKS
from surefoot.testing.place import Place
from surefoot.testing.postgres import PrivatePostgres

NUMBERS = itertools.count()


def flipped(content: bytes) -> bytes:
    return content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]


def memory_place() -> Place:
    store = MemoryStore()

    def vanish(_: Store, owner_id: int) -> None:
        store.present.discard(owner_id)

    return Place(lambda: store, fresh=memory_place, vanish=vanish)


def sqlite_place(folder: Path) -> Place:
    path = folder / f"{next(NUMBERS)}.db"
    tables = {
        "entry": (
            "SELECT e.num, e.value FROM entries e JOIN runs r ON r.num = e.run WHERE r.id = ?",
            "entries",
            "value",
        ),
        "run": ("SELECT num, record FROM runs WHERE id = ?", "runs", "record"),
        "effect": ("SELECT num, record FROM effects WHERE key = ?", "effects", "record"),
    }

    def damage(what: str, name: str) -> None:
        select, table, column = tables[what]
        with sqlite3.connect(path) as db:
            num, content = db.execute(select, (name,)).fetchone()
            db.execute(f"UPDATE {table} SET {column} = ? WHERE num = ?", (flipped(content), num))

    return Place(lambda: SqliteStore(path), fresh=lambda: sqlite_place(folder), damage=damage)


def postgres_place(url: str) -> Place:
    """Each place is a schema of its own in one database."""
    schema = f"place_{next(NUMBERS)}"
    tables = {
        "entry": (
            f"SELECT e.run, e.value FROM {schema}.entries e JOIN {schema}.runs r ON r.num = e.run WHERE r.id = %s",
            f"UPDATE {schema}.entries SET value = %s WHERE run = %s",
        ),
        "run": (
            f"SELECT num, record FROM {schema}.runs WHERE id = %s",
            f"UPDATE {schema}.runs SET record = %s WHERE num = %s",
        ),
        "effect": (
            f"SELECT num, record FROM {schema}.effects WHERE key = %s",
            f"UPDATE {schema}.effects SET record = %s WHERE num = %s",
        ),
    }

    def damage(what: str, name: str) -> None:
        select, update = tables[what]
        with psycopg.connect(url) as db:
            num, content = db.execute(select, (name,)).fetchone() or (0, b"")
            db.execute(update, (flipped(content), num))

    return Place(lambda: PostgresStore(url, schema=schema), fresh=lambda: postgres_place(url), damage=damage)


@pytest.mark.parametrize("check", CHECKS + DESK_CHECKS + FENCE_CHECKS, ids=lambda check: check.__name__)
def test_the_memory_store_keeps_the_contract(check: Check) -> None:
    check(memory_place())


@pytest.mark.parametrize("check", CHECKS + DESK_CHECKS + FENCE_CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_store_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    check(sqlite_place(tmp_path))


@pytest.mark.parametrize("check", CHECKS + DESK_CHECKS + FENCE_CHECKS, ids=lambda check: check.__name__)
def test_the_postgresql_store_keeps_the_contract(check: Check, postgres: PrivatePostgres) -> None:
    check(postgres_place(postgres.url))


def test_every_check_of_the_module_is_in_the_list() -> None:
    public = {
        name
        for name, value in vars(contract).items()
        if callable(value) and getattr(value, "__module__", "") == contract.__name__ and name[0].islower()
    }
    assert public == {check.__name__ for check in CHECKS}


def test_a_changed_entry_in_memory_is_reported_too() -> None:
    place, store = memory_place(), MemoryStore()
    store.transact([place.start(), place.append("a", b'"40"')])
    store._entries["r"][0] = replace(store._entries["r"][0], value=b'"41"')
    with pytest.raises(Damaged, match="entry 0"):
        store.read_run("r")
