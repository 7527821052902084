"""Effects outside any run: they need an open `Surefoot` to be recorded in."""

from __future__ import annotations

from typing import Any

from ..core.errors import UsageError
from ..core.flows import RunState
from .engine import Engine
from .session import Session

_open_engines: list[Engine] = []


def enter_engine(engine: Engine) -> None:
    """Effects outside a run are recorded in the most recently opened `Surefoot`."""
    _open_engines.append(engine)


def leave_engine(engine: Engine) -> None:
    """It is closing."""
    if engine in _open_engines:
        _open_engines.remove(engine)


def state_of(engine: Engine, run_id: str = "", fence: int = 0, entries: Any = ()) -> RunState:
    """The state that flows work on: of a run, or of effects outside any."""
    return RunState(
        run_id,
        fence,
        list(entries),
        owner=engine.owner,
        namespace=engine.namespace,
        stamps=engine.stamps,
        working=engine.working,
        inline_bytes=engine.inline_bytes,
    )


def outside_session(name: str) -> Session:
    """A session without a run; UsageError when no `Surefoot` is open."""
    if not _open_engines:
        raise UsageError(
            f"effect {name!r} was called with no Surefoot open, so nothing would protect it; "
            'call it inside `with Surefoot("agents.db"):`'
        )
    engine = _open_engines[-1]
    return Session(engine, state_of(engine))
