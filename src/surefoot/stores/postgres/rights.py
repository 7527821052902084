"""Gives a role what a worker needs and nothing more, so that a worker's password can neither rewrite a journal nor
change a table.
"""

from __future__ import annotations

import threading

import psycopg

from ...core.errors import StoreRefused
from .connection import Link, queries_for, refused
from .place import read_url

NO_SUCH_ROLE = "42704"


def grant_worker(url: str, role: str, *, schema: str | None = None) -> None:
    """Let a role work in the store that this URL names; all or nothing, and durable when it returns.

    Raises StoreRefused.
    """
    address = read_url(url, schema)
    link = Link(address, threading.Event())
    quoted = '"' + role.replace('"', '""') + '"'
    try:
        statement = queries_for(address.schema, "rights.sql")["grant_worker"].replace("{role}", quoted)
        link.connect().execute(statement.encode())
    except psycopg.Error as error:
        if error.sqlstate == NO_SUCH_ROLE:
            raise StoreRefused(f"{address.shown}: there is no role {role!r}; CREATE ROLE it first") from None
        raise refused(address, error) from None
    finally:
        link.drop()
