"""Effects outside any run: they need an open `Surefoot` to be recorded in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.effect import Effect
from ..core.errors import UsageError
from ..core.flows import EffectCall, RunState
from ..core.journal import Branch
from ..core.run import Run
from .engine import Engine
from .session import Session

_open_engines: list[Engine] = []
finders: list[Callable[[Effect, bytes, Branch], EffectCall | None]] = [lambda effect, request, branch: None]
"""The last one finds the code of a recorded effect; the effects layer, which knows it, adds itself here."""


def enter_engine(engine: Engine) -> None:
    """Effects outside a run are recorded in the most recently opened `Surefoot`."""
    _open_engines.append(engine)


def leave_engine(engine: Engine) -> None:
    """It is closing."""
    if engine in _open_engines:
        _open_engines.remove(engine)


def state_of(engine: Engine, run: Run | None = None, entries: Any = (), run_id: str = "") -> RunState:
    """The state that flows work on: of a run, or of effects outside any."""
    return RunState(
        run_id if run is None else run.id,
        0 if run is None else run.fence,
        list(entries),
        owner=engine.owner,
        namespace=engine.namespace,
        stamps=engine.stamps,
        working=engine.working,
        find_call=finders[-1],
        tentative=() if run is None else run.tentative,
        inline_bytes=engine.inline_bytes,
    )


def outside_session(name: str, engine: Engine | None = None) -> Session:
    """A session without a run, of the `Surefoot` opened last unless given; UsageError when none is open."""
    if engine is not None:
        return Session(engine, state_of(engine))
    if not _open_engines:
        raise UsageError(
            f"effect {name!r} was called with no Surefoot open, so nothing would protect it; "
            'call it inside `with Surefoot("agents.db"):`'
        )
    engine = _open_engines[-1]
    return Session(engine, state_of(engine))
