"""A process that dies at a chosen command, without a process.

Every command of a flow is a yield, so every command is a place to die, and nobody keeps a list of them: run once with
`count_commands`, or let n grow until nothing crashes any more. `crash_at(n).drive(surefoot)` goes between the flows and
their driver. From the n-th command on every command raises `SimulatedCrash`, so nothing that a dying process does on
its way out reaches the store or the world; `abandon` then drops what the operating system would drop.

    driver = crash_at(7, when="after").drive(surefoot)
    with pytest.raises(SimulatedCrash):
        surefoot.run(order, "acme", id="order-acme")
    assert driver.struck          # a test that passes when nothing crashed proves nothing
    abandon(surefoot)
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from ..core.commands import Command
from ..runtime.app import Surefoot
from ..runtime.outside import leave_engine
from ..runtime.session import Session
from ..stores.memory import MemoryStore

When = Literal["before", "after"]


class SimulatedCrash(BaseException):
    """The process has died here. A BaseException, so that no `except Exception` outlives it."""


def _die() -> None:
    raise SimulatedCrash


class CrashDriver:
    """Counts commands, and strikes before or after the n-th; made by `crash_at`, `strike_at` and `count_commands`.

    `commands` lists the names of those that were asked for; `struck` names the one that was struck, or is "".
    """

    def __init__(
        self, number: int, when: When, strike: Callable[[], None], kind: type[Command[Any]] | None = None
    ) -> None:
        """`number` counts commands (of `kind`) from 1; 0 never strikes. `strike` raises, or lets the process go on."""
        self.number, self.when, self.kind = number, when, kind
        self.commands: list[str] = []
        self.struck = ""
        self.dead: BaseException | None = None
        self._strike = strike
        self._counted = 0
        self._lock = threading.Lock()

    def drive(self, surefoot: Surefoot) -> CrashDriver:
        """Go between every flow of `surefoot` and its handlers, of `def` and `async def` alike; returns itself."""
        engine = surefoot.engine
        engine.sync_handlers = {kind: self._around(handle) for kind, handle in engine.sync_handlers.items()}
        engine.async_handlers = {kind: self._around_async(handle) for kind, handle in engine.async_handlers.items()}
        return self

    def _around(self, handle: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def handled(session: Session, command: Command[Any]) -> Any:
            mine = self._before(command)
            value = handle(session, command)
            self._after(command, mine)
            return value

        return handled

    def _around_async(self, handle: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handled(session: Session, command: Command[Any]) -> Any:
            mine = self._before(command)
            value = await handle(session, command)
            self._after(command, mine)
            return value

        return handled

    def _before(self, command: Command[Any]) -> bool:
        with self._lock:
            if self.dead is not None:
                raise self.dead
            self.commands.append(type(command).__name__)
            if self.kind is None or isinstance(command, self.kind):
                self._counted += 1
                mine = self._counted == self.number
            else:
                mine = False
        if mine and self.when == "before":
            self._hit(command)
        return mine

    def _after(self, command: Command[Any], mine: bool) -> None:
        if mine and self.when == "after":
            self._hit(command)
        if self.dead is not None:
            raise self.dead

    def _hit(self, command: Command[Any]) -> None:
        self.struck = type(command).__name__
        try:
            self._strike()
        except BaseException as death:
            self.dead = death
            raise


def crash_at(number: int, *, when: When = "before", kind: type[Command[Any]] | None = None) -> CrashDriver:
    """A driver under which the process dies before or after its `number`-th command (of `kind`, if given), from 1."""
    return CrashDriver(number, when, _die, kind)


def strike_at(
    number: int, strike: Callable[[], None], *, when: When = "before", kind: type[Command[Any]] | None = None
) -> CrashDriver:
    """A driver that calls `strike` there, such as a real SIGSTOP of its own process, and goes on if that returns."""
    return CrashDriver(number, when, strike, kind)


def count_commands() -> CrashDriver:
    """A driver that never strikes; `len(driver.commands)` is how many places to die there were."""
    return CrashDriver(0, "before", _die)


def abandon(surefoot: Surefoot) -> None:
    """Leave `surefoot` as a killed process leaves it: nothing is released, nothing queued is committed.

    Its locks and connections go, as the operating system would have it; a memory store forgets only its presence, so
    that another `Surefoot` can open the same object.
    """
    engine = surefoot.engine
    leave_engine(engine)
    engine._stop_heart.set()  # pyright: ignore[reportPrivateUsage]
    committer = engine.committer
    committer._queue.clear()  # pyright: ignore[reportPrivateUsage]
    committer._closed = True  # pyright: ignore[reportPrivateUsage]
    committer._wake.put(None)  # pyright: ignore[reportPrivateUsage]
    surefoot._closed = True  # pyright: ignore[reportPrivateUsage]
    store = surefoot.store
    if isinstance(store, MemoryStore):
        store.present.discard(engine.owner)
    else:
        store.close()
