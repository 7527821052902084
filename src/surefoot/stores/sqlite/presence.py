"""Presence: a lock on a small file beside the database, which the operating system drops with the process.

It only hastens a takeover. A false "present" (a fork kept the lock) costs the rest of the lease; a false "gone" is
harmless, since the fence token protects.
"""

from __future__ import annotations

import os
from contextlib import suppress

from ...core.errors import StoreError

try:
    import fcntl
except ImportError:  # no flock here: leases alone decide
    fcntl = None


APPEAR_TRIES = 10_000


class Presence:
    """Locks of this process, and a look at others'."""

    def __init__(self, database: str) -> None:
        """`database`: the store's file; the marks lie in a folder beside it."""
        self._folder = f"{database}-owners"
        self._held: dict[int, int] = {}

    def appear(self, owner_id: int) -> None:
        """Take this owner's lock."""
        if fcntl is None or owner_id in self._held:
            return
        descriptor = self._create(self._mark_of(owner_id))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._held[owner_id] = descriptor

    def _mark_of(self, owner_id: int) -> str:
        return os.path.join(self._folder, str(owner_id))

    def _create(self, path: str) -> int:
        for _ in range(APPEAR_TRIES):
            try:
                with suppress(FileExistsError):
                    os.mkdir(self._folder)
                return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except (FileNotFoundError, NotADirectoryError):
                continue  # somebody tidied up in between, perhaps inside mkdir
        raise StoreError(f"{self._folder} vanishes as soon as it is made; does something clean up beside the database?")

    def is_gone(self, owner_id: int) -> bool:
        """True if nobody holds that owner's lock."""
        if fcntl is None or owner_id in self._held:
            return False
        path = self._mark_of(owner_id)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            with suppress(FileNotFoundError):
                os.unlink(path)
            return True
        finally:
            os.close(descriptor)

    def vanish(self) -> None:
        """Drop every lock of this process."""
        for owner_id, descriptor in self._held.items():
            with suppress(FileNotFoundError):
                os.unlink(self._mark_of(owner_id))
            os.close(descriptor)
        self._held.clear()  # the empty folder stays: taking it away would race with whoever appears right now
