"""`Twin`: a receiver on this machine that keeps, or breaks, its contract on demand.

with Twin.of(receivers.get("stripe.v1"), tmp_path / "ledger.jsonl") as twin:
    twin.next("lost_answer")                       # acts, and the answer never arrives
    run_my_agent(base_url=twin.url)                # killed, restarted, in doubt: whatever you test
    assert len(twin.acts()) == 1
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...receivers.model import Receiver
from ..ledger import Ledger, Line
from .behaviour import Behaviour
from .clock import SharedClock
from .engine import Engine
from .messages import Fault, Thing, Wire
from .of_receiver import behaviour_of
from .plain import PlainWire
from .server import TwinServer, serve


class Twin:
    """A running twin; a context manager. Its ledger is the only thing that a test may count."""

    def __init__(
        self,
        behaviour: Behaviour,
        ledger: Path | str | None = None,
        *,
        clock: SharedClock | None = None,
        wire: Wire | None = None,
        port: int = 0,
    ) -> None:
        """Serves when this returns. Without `ledger` it lies in a temporary folder, without `clock` beside it."""
        self._folder = None if ledger is not None else tempfile.TemporaryDirectory(prefix="surefoot-twin-")
        path = Path(ledger) if ledger is not None else Path(self._folder.name if self._folder else "") / "ledger.jsonl"
        self.behaviour, self.ledger_path = behaviour, path
        self.clock = clock or SharedClock(path.with_name(path.name + ".clock"))
        self._ledger = Ledger(path)
        self.engine = Engine(behaviour, self._ledger, self.clock.now)
        self._server = TwinServer(self.engine, wire or PlainWire(), self.advance, port=port)
        self._thread = serve(self._server)
        self.port: int = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    @classmethod
    def of(
        cls,
        receiver: Receiver | Behaviour,
        ledger: Path | str | None = None,
        *,
        clock: SharedClock | None = None,
        wire: Wire | None = None,
        port: int = 0,
        **lies: Any,
    ) -> Twin:
        """The twin of a `Receiver` or `Behaviour`. `lies` change its behaviour: `window_seconds=60` forgets early."""
        behaviour = receiver if isinstance(receiver, Behaviour) else behaviour_of(receiver)
        return cls(replace(behaviour, **lies), ledger, clock=clock, wire=wire, port=port)

    # --- what it meets next -----------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Move the clock: windows pass, lookups begin to show, for everybody who shares it."""
        self.clock.advance(seconds)

    def next(self, *faults: Fault | str, lookups: bool = False) -> None:
        """What the next requests (or lookups) meet, one each: see `Fault`. Those after them are well served."""
        self.engine.next(*faults, lookups=lookups)

    def release(self) -> int:
        """Let everything act that is held or late; returns how many, once they have acted."""
        return self.engine.release()

    def hide(self, hides: bool = True) -> None:
        """Lookups and events show nothing from now on, as an index does that has lost something."""
        self.engine.hides = hides

    def finish(self, value: str) -> None:
        """Close what was made under this key, marker, id or name: a state key or a name is free again."""
        self.engine.finish(value)

    def issue(self) -> str:
        """A fresh token, for receivers of secrets."""
        return self.engine.issue()

    # --- what happened ----------------------------------------------------------------------------------------------

    def acts(self, name: str | None = None) -> list[Line]:
        """What changed the world, in order; only under this name if one is given."""
        return [line for line in self.lines() if line.what == "performed" and name in (None, line.name)]

    def lines(self, what: str | None = None) -> list[Line]:
        """Everything that the ledger holds; only lines of this kind if one is given."""
        return [line for line in self._ledger.lines() if what in (None, line.what)]

    def events(self) -> list[Thing]:
        """What the receiver has told by event until now."""
        return self.engine.events()

    def wait_for(self, what: str, count: int = 1, *, timeout: float = 30.0) -> None:
        """Return once the ledger has so many lines of this kind, or (`held`) so many requests stand still."""
        self.engine.wait_for(what, count, timeout=timeout)

    # --- closing ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop serving. What is held never acts; the ledger stays, unless it was temporary."""
        self._server.close()
        self._thread.join()
        self._ledger.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
