"""Makes the schema of a new store, and brings an old one up to date, but only when asked to.

Several versions of a program may share a database, so opening never changes a schema that others use: an older one is
refused until `migrate` is called, a newer one until Surefoot is upgraded.
"""

from __future__ import annotations

import threading

import psycopg

from ...core.errors import StoreRefused
from ..queries import load_migrations
from .connection import Link, queries_for, read_promise, refused
from .place import Address, read_url

SCHEMA_VERSION = 1


def check_schema(link: Link, queries: dict[str, str]) -> None:
    """Make the tables of a new store, or find those of this version; raises StoreRefused for any others."""
    found = _version(link, queries)
    if found is None:
        found = _apply(link, queries)
    if found < SCHEMA_VERSION:
        raise StoreRefused(
            f"{link.address.shown} has schema version {found}, and this Surefoot needs {SCHEMA_VERSION}. Stop the "
            "older workers, then run `surefoot migrate` once."
        )
    lacking = link.rows(queries["lacking_rights"])
    if lacking:
        named = "; ".join(f"{rights} on {place}" for place, rights in lacking)
        raise StoreRefused(
            f"{link.address.shown}: this role lacks rights that a worker needs: {named}. The role that made the tables "
            "gives them with `surefoot migrate --grant ROLE`"
        )


def migrate(url: str, *, schema: str | None = None) -> tuple[int, int]:
    """Bring the schema of a store up to date, making it if there is none: (version before, version now).

    Raises StoreRefused. All of it is durable when this returns; a crash inside leaves the old schema as it was.
    """
    address = read_url(url, schema)
    link = Link(address, threading.Event())
    queries = queries_for(address.schema)
    try:
        link.connect()
        read_promise(link, queries)
        before = _version(link, queries) or 0
        return before, _apply(link, queries)
    except psycopg.Error as error:
        raise refused(address, error) from None
    finally:
        link.drop()


def find_version(url: str, *, schema: str | None = None) -> int:
    """The version of a store's schema, 0 if there is no store yet; nothing is written. Raises StoreRefused."""
    address = read_url(url, schema)
    link = Link(address, threading.Event())
    queries = queries_for(address.schema)
    try:
        link.connect()
        read_promise(link, queries)
        return _version(link, queries) or 0
    except psycopg.Error as error:
        raise refused(address, error) from None
    finally:
        link.drop()


def _version(link: Link, queries: dict[str, str]) -> int | None:
    """The version of the schema, or None if it is still to be made; raises StoreRefused if it is another's."""
    address = link.address
    exists, ours, tables, may_use, may_create = link.rows(queries["found_schema"], (address.schema,))[0]
    if not may_use:
        raise StoreRefused(
            f"{address.shown}: this role has no right to use the schema; GRANT USAGE on it, and on its tables: "
            f"`surefoot migrate --grant ROLE` does, as the role that made it"
        )
    if ours:
        version = link.rows(queries["version"])[0][0]
        _refuse_newer(address, version)
        return version
    if tables:
        raise StoreRefused(
            f"{address.shown}: the schema holds another application's tables; name another one with ?surefoot_schema="
        )
    if not may_create:
        where = "in that schema" if exists else "in that database"
        raise StoreRefused(
            f"{address.shown}: there is no store yet, and this role may not create one; GRANT CREATE {where}, or let a "
            "role that may run `surefoot migrate` once"
        )
    return None


def _refuse_newer(address: Address, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise StoreRefused(
            f"{address.shown} has schema version {version}, made by a newer Surefoot; this one knows {SCHEMA_VERSION}. "
            "Upgrade Surefoot."
        )


def _apply(link: Link, queries: dict[str, str]) -> int:
    """Apply what is missing, in one transaction and by one process at a time; the version then."""
    address = link.address
    db = link.connect()
    db.execute(queries["begin"].encode())
    db.execute(queries["alone"].encode())
    found = _version(link, queries)
    if found is None:
        exists = link.rows(queries["found_schema"], (address.schema,))[0][0]
        if not exists:
            db.execute(queries["create_schema"].encode())
    for number, script in load_migrations(__file__):
        if number > (found or 0):
            db.execute(script.replace("{schema}", f'"{address.schema}"').encode())
            db.execute(queries["record_migration"].encode(), (number,))
    db.execute(queries["commit"].encode())
    return SCHEMA_VERSION
