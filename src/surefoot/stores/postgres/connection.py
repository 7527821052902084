"""One connection at a time, replaced when it breaks; and what an error says about a commit.

Nothing of a session is relied on between two statements (no settings, no open transaction; a prepared statement only
where the session is known to stay), so a transaction pooler may stand in between, and a replaced connection goes on
where the last one stopped.
"""

from __future__ import annotations

import threading
from typing import Any

import psycopg

from ...core.errors import NotCommitted, StoreError, StoreRefused, StoreUnreachable
from ..queries import load_queries
from .place import Address
from .report import Promise
from .wire import Wire

Rows = list[tuple[Any, ...]]
RECONNECT_SECONDS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 4.0)
"""How long to wait before each further attempt to connect: about 20 seconds in all."""

# SQLSTATE classes that PostgreSQL reports only while the transaction can still be, and has been, rolled back.
CERTAINLY_ROLLED_BACK = (
    *("0A", "21", "22", "23", "25", "26", "28", "2B", "34", "3B", "3D", "3F", "40", "42", "44", "53", "54", "55", "P0"),
)
COMPLETION_UNKNOWN = "40003"
SERIALIZATION, DEADLOCK, LOCK_TIMEOUT = "40001", "40P01", "55P03"
UNIQUE, NO_RIGHT = "23505", "42501"
AWAY = ("08", "53300", "57P01", "57P02", "57P03")
# What a server without a free connection says, where it speaks English, and pgbouncer while its server is away.
NOT_NOW = ("too many clients", "connection slots", "server login", "connect failed", "query_wait_timeout")
# What the client library says, in English where nobody translates it: no waiting helps against this.
NO_SSL = "SSL was required"
ONCE_MORE = frozenset({SERIALIZATION, DEADLOCK, LOCK_TIMEOUT})


class Unreachable(NotCommitted):
    """No connection could be made, so nothing was sent."""


def certainly_not_committed(error: psycopg.Error) -> bool:
    """True if it was never sent, or the server itself said that it rolled back.

    Everything else (a cut, a cancel, a shutdown) is unknown.
    """
    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.DataError | psycopg.ProgrammingError):
        return True  # a value that the driver could not write down
    return state.startswith(CERTAINLY_ROLLED_BACK) and state != COMPLETION_UNKNOWN


def queries_for(schema: str, name: str = "queries.sql") -> dict[str, str]:
    """The named statements of this folder, for one schema."""
    return {title: text.replace("{schema}", f'"{schema}"') for title, text in load_queries(__file__, name).items()}


class Link:
    """A connection that is made when it is needed, and made anew when it broke. Not for two threads at once."""

    def __init__(self, address: Address, hurry: threading.Event) -> None:
        """Nothing is connected yet. `hurry`: set when nobody shall wait for a connection any more."""
        self.address = address
        self._hurry = hurry
        self._connection: psycopg.Connection[Any] | None = None
        self._warnings: list[str] = []
        self._wire: Wire | None = None
        self._settings = b""

    def connect(self) -> psycopg.Connection[Any]:
        """The connection; one attempt to make it if there is none. Raises psycopg.Error."""
        db = self._connection
        if db is None or db.closed:
            self.drop()
            db = psycopg.connect(self.address.conninfo, autocommit=True, prepare_threshold=None)
            db.add_notice_handler(self._noticed)
            self._connection = db
            if self._settings:
                try:
                    db.execute(self._settings)
                except BaseException:
                    self.drop()
                    raise
        return db

    def stay(self, settings: str) -> None:
        """From now on a session has these settings, and may prepare: it has been seen that no pooler stands between."""
        self._settings = settings.encode()
        if self._connection is not None:
            self._connection.execute(self._settings)

    def get(self) -> psycopg.Connection[Any]:
        """The connection, tried for with back-off while the server is away; Unreachable when it stays away."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        for seconds in (*RECONNECT_SECONDS, None):
            try:
                return self.connect()
            except psycopg.Error as error:
                if seconds is None or self._hurry.wait(seconds):
                    message = self.address.scrub(str(error))
                    raise Unreachable(f"{self.address.shown} cannot be reached: {message}") from None
        raise AssertionError("the last attempt raises")

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "a warning")

    def warning(self) -> str:
        """What the server has warned of since the last call, or nothing."""
        if not self._warnings:
            return ""
        warnings, self._warnings = self._warnings, []
        return "; ".join(warnings)

    def rows(self, statement: Any, parameters: Any = None) -> Rows:
        """The rows of one statement, values in binary form; raises psycopg.Error."""
        cursor = self.get().cursor(binary=True)
        cursor.execute(statement, parameters)
        return cursor.fetchall()

    def wire(self) -> Wire:
        """The connection, for statements that are sent often."""
        connection = self.get()
        if self._wire is None:
            self._wire = Wire(connection, prepares=bool(self._settings))
        return self._wire

    def fresh_wire(self) -> Wire:
        """The same, for a commit: on a connection that has not ended, as far as can be known without asking.

        So a cut that came while nobody used it makes no commit's outcome unknown.
        """
        wire = self._wire
        if wire is None or not wire.is_silent():
            if not self.is_alive():
                self.drop()
            wire = self.wire()
        if self._warnings:
            self._warnings = []
        return wire

    def is_alive(self) -> bool:
        """False once the server has closed this connection; asks nobody."""
        db = self._connection
        if db is None or db.closed:
            return False
        if self._wire is not None and self._wire.is_silent():
            return True
        try:
            db.pgconn.consume_input()  # may read the server's last words
            db.pgconn.consume_input()  # finds that nothing follows them
        except psycopg.Error:
            return False
        return db.pgconn.status == psycopg.pq.ConnStatus.OK

    def drop(self) -> None:
        """Close it, whatever its state; the next use makes another."""
        db, self._connection = self._connection, None
        self._warnings, self._wire = [], None
        if db is not None:
            db.close()


def read_promise(link: Link, queries: dict[str, str]) -> Promise:
    """What the server promises; raises StoreRefused when no store can be kept there."""
    row = link.rows(queries["settings"])[0]
    backend = link.connect().info.backend_pid
    promise = Promise(
        version=row[0],
        version_text=row[1].split()[0],
        encoding=row[2],
        in_recovery=row[3],
        fsync=row[4],
        full_page_writes=row[5],
        synchronous_commit=row[6],
        synchronous_standby_names=row[7],
        data_checksums=row[8],
        standby_count=row[9],
        pooled=row[10] != backend,
    )
    refusals = promise.refusals()
    if refusals:
        raise StoreRefused(f"{link.address.shown}: {refusals[0]}")
    return promise


def refused(address: Address, error: psycopg.Error) -> StoreError:
    """What a failure to open means, in words that say what to do; without the password."""
    message = address.scrub(str(error))
    if is_away(address, error):
        return unreachable(address, error)
    if error.sqlstate == NO_RIGHT:
        advice = "grant this role its rights on the schema, or use the role that made it"
    elif "read-only" in message:
        advice = "it is a standby, which cannot be written; give the address of its primary, or of all servers"
    elif NO_SSL in message:
        advice = "switch SSL on there, or leave sslmode=require out of the URL"
    elif isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        advice = "check user, password and database"
    else:
        advice = "check the URL"
    return StoreRefused(f"{address.shown} could not be opened: {message}; {advice}")


def unreachable(address: Address, error: psycopg.Error) -> StoreUnreachable:
    """The same for a server that does not answer."""
    message = address.scrub(str(error))
    return StoreUnreachable(
        f"{address.shown} cannot be reached: {message}; check host and port, and that the server runs"
    )


def is_away(address: Address, error: psycopg.Error) -> bool:
    """True if the server does not take connections for now: it is down, starts, stops, or has too many of them.

    A failure to connect carries no code, and its words are in the server's language, so the server is asked once more.
    """
    if not isinstance(error, psycopg.OperationalError):
        return False
    if error.sqlstate is not None:
        return error.sqlstate.startswith(AWAY)
    if NO_SSL in str(error):
        return False
    if any(words in str(error) for words in NOT_NOW):
        return True
    ping = psycopg.pq.PGconn.ping(address.conninfo.encode())
    return ping in (psycopg.pq.Ping.REJECT, psycopg.pq.Ping.NO_RESPONSE)


def connect_first(link: Link) -> None:
    """Connect to a server that may just be coming up; StoreUnreachable if it does not answer, else psycopg.Error."""
    try:
        link.connect()
    except psycopg.Error as error:
        if is_away(link.address, error):
            raise unreachable(link.address, error) from None
        link.connect()  # what it says now was not said while it started
