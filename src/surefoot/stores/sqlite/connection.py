"""Opens a SQLite connection that keeps its promise, or refuses.

WAL and `synchronous=FULL` are read back; Python's own transaction handling is off; the write lock is always taken
first. Python's default (a rollback journal) lost the last acknowledged commit at power loss.
"""

from __future__ import annotations

import os
import sqlite3
import sys

from ...core.errors import NotCommitted, StoreRefused
from ..queries import load_migrations, load_queries
from .place import check_place

APPLICATION_ID = 0x53555245
SCHEMA_VERSION = 1
BUSY_SLICE_MS = 250
CHECKPOINT_PAGES = 1000
QUERIES = load_queries(__file__)
PRAGMAS = load_queries(__file__, "pragmas.sql")


def open_connection(path: str) -> sqlite3.Connection:
    """A connection in WAL mode with full sync, or StoreRefused saying what was found."""
    if sqlite3.sqlite_version_info < (3, 37):
        raise StoreRefused(f"SQLite {sqlite3.sqlite_version} is too old; Surefoot needs 3.37 or newer")
    check_place(path)
    try:
        db = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, cached_statements=256, timeout=BUSY_SLICE_MS / 1000
        )
    except sqlite3.Error as error:
        raise StoreRefused(f"{path} could not be opened: {error}") from error
    try:
        _configure(db, path)
    except sqlite3.OperationalError as error:
        db.close()
        if is_busy(error):
            raise NotCommitted(f"{path} is locked by another program: {error}") from error
        raise StoreRefused(f"{path} could not be opened: {error}") from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        db.close()
        raise StoreRefused(f"{path} is not a SQLite database ({error}); give Surefoot a file of its own") from error
    except BaseException:
        db.close()
        raise
    return db


def _configure(db: sqlite3.Connection, path: str) -> None:
    _check_owner(db, path)
    mode = db.execute(PRAGMAS["journal_mode"]).fetchone()[0]
    if mode != "wal":
        raise StoreRefused(f"{path}: expected journal_mode wal, found {mode!r}; its file system cannot share memory")
    db.execute(PRAGMAS["synchronous"])
    found = db.execute(PRAGMAS["read_synchronous"]).fetchone()[0]
    if found != 2:
        raise StoreRefused(f"{path}: expected synchronous FULL (2), found {found}; commits would not be durable")
    for name in ("checkpoint_pages", "foreign_keys", "cell_check", "trusted_schema"):
        db.execute(PRAGMAS[name])
    if sys.platform == "darwin":
        db.execute(PRAGMAS["fullfsync"])
        db.execute(PRAGMAS["checkpoint_fullfsync"])


def _check_owner(db: sqlite3.Connection, path: str) -> None:
    db.execute(QUERIES["begin_read"])  # one snapshot: another process may be making the tables right now
    application = db.execute(PRAGMAS["application_id"]).fetchone()[0]
    version = db.execute(PRAGMAS["user_version"]).fetchone()[0]
    tables = db.execute(PRAGMAS["tables"]).fetchone()[0]
    db.execute(QUERIES["commit"])
    if application not in (0, APPLICATION_ID):
        raise StoreRefused(f"{path} belongs to another application (id {application:#x}); use a file of its own")
    if application == 0 and tables:
        raise StoreRefused(f"{path} holds another application's tables; give Surefoot a file of its own")
    refuse_newer(version, path)


def refuse_newer(version: int, path: str) -> None:
    """Raises StoreRefused for a schema that a newer Surefoot has made: neither could read what the other writes."""
    if version > SCHEMA_VERSION:
        raise StoreRefused(
            f"{path} has schema {version}, made by a newer Surefoot; this one knows {SCHEMA_VERSION}. Upgrade Surefoot."
        )


def migrate(db: sqlite3.Connection, path: str) -> None:
    """Bring the schema up to date: all steps in one transaction, under the write lock."""
    if db.execute(PRAGMAS["user_version"]).fetchone()[0] == SCHEMA_VERSION:
        return
    db.execute(QUERIES["begin"])
    try:
        version = db.execute(PRAGMAS["user_version"]).fetchone()[0]
        refuse_newer(version, path)
        for number, script in load_migrations(__file__):
            if number > version:
                for statement in script.split(";\n"):
                    db.execute(statement)
        db.execute(PRAGMAS["set_application_id"])
        db.execute(PRAGMAS["set_user_version"])
        db.execute(QUERIES["commit"])
    except BaseException:
        if db.in_transaction:
            db.execute(QUERIES["rollback"])
        raise


def advice(path: str, error: BaseException) -> str:
    """What went wrong with this file, and what to do about it."""
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return f"{path}: the disk is full; nothing was acknowledged. Free some space, then run again."
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"{path} is damaged ({error}); restore it from a copy taken before the damage"
    return f"{path}: {type(error).__name__}: {error}"


def is_busy(error: sqlite3.Error) -> bool:
    """True for "somebody else holds the lock"."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def lengthen_log(db: sqlite3.Connection, path: str, pages: int) -> None:
    """Give the write-ahead log its full length once, so that later commits overwrite instead of growing the file.

    An overwrite needs no change of the file's size on disk, which is most of what an fsync of a growing file costs.
    Zeros beyond the last frame are never valid frames (their salt is not the log's), and nobody else can append while
    the write lock is held. SQLite keeps the length: its checkpoints do not truncate.
    """
    log = f"{path}-wal"
    db.execute(QUERIES["begin"])
    try:
        size, full = os.path.getsize(log), 32 + pages * (24 + 4096)
        if 0 < size < full:
            with open(log, "r+b") as file:
                os.pwrite(file.fileno(), bytes(full - size), size)
                os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())
    finally:
        db.execute(QUERIES["rollback"])
