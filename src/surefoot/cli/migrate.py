"""Brings a store's schema up to date: the one command that changes tables, since workers never do.

Several versions of a program may share a PostgreSQL store, so the step from one schema to the next is a person's, taken
by a role that may create tables. A SQLite file has one program at a time, which brings it up to date when it opens it.
"""

from __future__ import annotations

from ..core.ids import check_id
from ..runtime.app import open_store
from .desk import POSTGRES, check_exists
from .exits import Exit, Failed
from .page import Page
from .shapes import Migrated


def migrate_store(url: str, *, check: bool, grant: str | None = None) -> Migrated:
    """Make or migrate the store and let a role work there, or with `check` only look.

    Raises Failed, StoreRefused, UsageError.
    """
    if grant is not None:
        check_id(grant, "--grant")
        if check or not url.startswith(POSTGRES):
            raise Failed(Exit.BAD_INPUT, "--grant needs a postgresql:// store, and cannot be said with --check")
    if not url.startswith(POSTGRES):
        return _opened(url)
    try:
        from ..stores.postgres import rights, schema
        from ..stores.postgres.place import read_url
    except ImportError as error:
        raise Failed(
            Exit.MISSING_EXTRA, f"PostgreSQL needs its driver ({error}): pip install 'surefoot[postgres]'"
        ) from None
    if check:
        before = now = schema.find_version(url)
    else:
        before, now = schema.migrate(url)
    if grant is not None:
        rights.grant_worker(url, grant)
    shown, needed = read_url(url).shown, schema.SCHEMA_VERSION
    return Migrated(store=shown, before=before, now=now, needed=needed, granted=grant or "")


def _opened(url: str) -> Migrated:
    from ..stores.sqlite.connection import SCHEMA_VERSION

    check_exists(url)
    open_store(url).close()
    return Migrated(store=url, before=SCHEMA_VERSION, now=SCHEMA_VERSION, needed=SCHEMA_VERSION)


def draw_migrated(page: Page, document: Migrated) -> None:
    """One sentence: what was done, or has to be."""
    before, now, needed = document.before, document.now, document.needed
    if now != needed:
        found = "there is no store yet" if not before else f"schema version {before}, and this Surefoot needs {needed}"
        page.line((f"{document.store}: {found}; run `surefoot migrate`", "bold yellow"))
    elif before == now:
        page.line((f"{document.store}: schema version {now}; nothing to do", "green"))
    else:
        what = f"made with schema version {now}" if not before else f"schema version {before} became {now}"
        page.line((f"{document.store}: {what}", "green"))
    if document.granted:
        page.line(f"{document.granted} may work there")
