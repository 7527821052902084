"""Presence: an advisory lock on a connection of its own, which the server drops when the process or its network ends.

It only hastens a takeover; the fence token is what protects. Behind a transaction pooler no connection is a process's
own, so no mark is made there, the owner's row says so, and the lease alone decides.
"""

from __future__ import annotations

import psycopg

from ...core.errors import StoreError
from .connection import Link


class Presence:
    """Marks of this process, and a look at others'."""

    def __init__(self, link: Link, queries: dict[str, str], *, pooled: bool) -> None:
        """`link` belongs to this object alone."""
        self._link, self._queries, self._pooled = link, queries, pooled
        self._owners: set[int] = set()
        self._held: set[int] = set()

    def appear(self, owner_id: int) -> None:
        """Take this owner's mark."""
        self._owners.add(owner_id)
        self.reappear()

    def reappear(self) -> None:
        """Take all marks again if their connection was lost; without a server, the next call tries again."""
        if self._pooled or (self._owners == self._held and self._link.is_alive()):
            return
        self._held.clear()
        self._link.drop()
        try:
            self._link.connect()
            for owner_id in self._owners:
                self._link.rows(self._queries["appear"], (str(owner_id),))
                self._held.add(owner_id)
        except (psycopg.Error, StoreError):
            self._link.drop()

    def marked(self, owner_id: int) -> bool:
        """True if this process holds that owner's mark."""
        return owner_id in self._held

    def vanish(self) -> None:
        """Drop every mark of this process; they are gone when this returns, if the server can be reached."""
        if self._held and self._link.is_alive():
            try:
                self._link.rows(self._queries["vanish"])
            except (psycopg.Error, StoreError):
                pass  # the server drops them when it notices
        self._owners.clear()
        self._held.clear()
        self._link.drop()


class Watch:
    """Waits for the end of others, on a connection of its own. Not for two threads at once."""

    def __init__(self, link: Link, queries: dict[str, str], *, pooled: bool) -> None:
        """`link` belongs to this object alone."""
        self._link, self._queries, self._pooled = link, queries, pooled
        if not pooled:
            link.stay(queries["patient"])

    def await_end(self, owner_id: int) -> bool | None:
        """True as soon as that owner's mark is dropped, False if it is held for a second, None if nobody knows."""
        if self._pooled:
            return None
        try:
            self._link.connect()
            return self._link.rows(self._queries["await_end"], {"id": str(owner_id), "number": owner_id})[0][0]
        except psycopg.Error as error:
            if not error.sqlstate:
                self._link.drop()
            return None

    def close(self) -> None:
        """Nobody waits any more."""
        self._link.drop()
