"""What really happened, written down by the receiver: the only thing that tests of effects may count.

The agent is never asked what it did. A line is on disk before an answer leaves; lines that wait for the disk at the
same time share one fsync.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a receiver did.

    `what` is `performed` (the world changed), `repeated` (a known request came again, nothing changed), `refused` or
    `looked_up`; `name` says which effect, `key` under which idempotency key, `body` with which request.
    """

    what: str
    name: str
    at: float
    key: str = ""
    body: str = ""
    number: int = 0


_decode = msgspec.json.Decoder(Line).decode


class Ledger:
    """An append-only list, also in a file when it has a path; `add` returns when the line is durable."""

    def __init__(self, path: Path | None = None) -> None:
        """Lines that the file holds already are read."""
        self._lines: list[Line] = list(read_ledger(path)) if path is not None and path.exists() else []
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._synced = 0
        self._file = -1 if path is None else os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def add(self, line: Line) -> None:
        """Write the line down."""
        with self._lock:
            self._lines.append(line)
            mine = len(self._lines)
            if self._file >= 0:
                os.write(self._file, msgspec.json.encode(line) + b"\n")
        if self._file < 0:
            return
        with self._sync_lock:
            if self._synced < mine:
                written = len(self._lines)
                os.fsync(self._file)
                self._synced = written

    def lines(self) -> list[Line]:
        """All lines so far."""
        with self._lock:
            return list(self._lines)

    def close(self) -> None:
        """Close the file; its lines stay."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_ledger(path: Path) -> list[Line]:
    """The lines of a ledger file; a last line that is still being written is left out."""
    return [_decode(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def performed(lines: Iterable[Line]) -> Counter[str]:
    """How often the world changed, by the effect's name."""
    return Counter(line.name for line in lines if line.what == "performed")
