"""Wake-ups among the processes of one machine: SQLite tells at almost no cost that somebody has committed.

A worker that has nothing to do looks at that number, and at the queue only when it has changed, so a run that another
process starts is taken at once. Without it a worker would poll, and be right, but late.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from .connection import QUERIES

LOOK_SECONDS = 0.002
REST_SECONDS = 0.02
"""How long nobody is woken again after a wake-up: what is ready may be more than the limits let pass."""


def hear(
    open_reader: Callable[[], sqlite3.Connection], closing: threading.Event, listener: Callable[[int | None], None]
) -> Callable[[], None]:
    """Call `listener` when another connection has committed and a run is ready; what is returned ends that."""
    over = threading.Event()

    def listen() -> None:
        try:
            db = open_reader()
        except Exception:
            return  # the worker polls
        try:
            seen = None
            while not over.wait(LOOK_SECONDS) and not closing.is_set():
                version = db.execute(QUERIES["data_version"]).fetchone()[0]
                if version != seen:
                    seen = version
                    if db.execute(QUERIES["any_ready"]).fetchone() is not None:
                        listener(None)
                        over.wait(REST_SECONDS)
        except sqlite3.Error:
            return
        finally:
            db.close()

    threading.Thread(target=listen, name="surefoot-ears", daemon=True).start()
    return over.set
