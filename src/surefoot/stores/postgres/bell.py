"""Wake-ups: a notification says that a run is ready, so that an idle worker looks at once. Losing all of them costs a
poll, and nothing else.

It is sent after the commit, by a thread and on a connection of its own: inside a commit every other commit would wait
for it. While one is under way, whatever comes next is one more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from ...core.errors import StoreError
from .connection import Link
from .place import Address
from .wire import statement_of

AGAIN_SECONDS = 1.0


class Bell:
    """Rings for the workers of one schema, and lets this process's workers hear it."""

    def __init__(self, address: Address, closing: threading.Event, queries: dict[str, str], *, pooled: bool) -> None:
        """Nothing is connected, and no thread runs, before it is first used. `closing` ends both threads."""
        self._address, self._closing, self._queries, self._pooled = address, closing, queries, pooled
        self._due = threading.Event()
        self._ringer: threading.Thread | None = None

    def ring(self) -> None:
        """Wake idle workers, here and elsewhere, soon; returns at once."""
        self._due.set()
        if self._ringer is None or not self._ringer.is_alive():
            self._ringer = threading.Thread(target=self._send, name="surefoot-bell", daemon=True)
            self._ringer.start()

    def _send(self) -> None:
        link, ring = Link(self._address, self._closing), statement_of(self._queries["ring"])
        channel = ring.write_down((self._address.schema,))
        if not self._pooled:
            link.stay(self._queries["patient"])
        while not self._closing.is_set():
            if not self._due.wait(AGAIN_SECONDS):
                continue
            self._due.clear()
            try:
                link.connect()
                link.wire().run(ring, channel)
            except (psycopg.Error, StoreError):
                link.drop()  # workers poll
        link.drop()

    def hear(self, listener: Callable[[int | None], None]) -> Callable[[], None]:
        """Call `listener` whenever it rings; what is returned ends that."""
        over = threading.Event()
        threading.Thread(target=self._listen, args=(listener, over), name="surefoot-ears", daemon=True).start()
        return over.set

    def _listen(self, listener: Callable[[int | None], None], over: threading.Event) -> None:
        listen = self._queries["listen"].encode()
        while not (over.is_set() or self._closing.is_set()):
            try:
                with psycopg.connect(self._address.conninfo, autocommit=True) as connection:
                    connection.execute(listen)
                    listener(None)  # for what rang while nobody listened
                    while not (over.is_set() or self._closing.is_set()):
                        for notice in connection.notifies(timeout=AGAIN_SECONDS, stop_after=1):
                            listener(int(notice.payload) if notice.payload.isdecimal() else None)
            except psycopg.Error:
                self._closing.wait(AGAIN_SECONDS)
