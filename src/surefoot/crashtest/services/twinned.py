"""A receiver's twin without its socket."""

from __future__ import annotations

from ...testing.twins.behaviour import Said
from ...testing.twins.engine import Engine
from ...testing.twins.messages import Call, Page, Request
from ...testing.twins.plain import PlainWire
from .base import Answered


class Twinned:
    """One service of kind `twin`, over the plain wire."""

    def __init__(self, engine: Engine) -> None:
        """The engine writes its own ledger."""
        self._engine, self._wire = engine, PlainWire()

    def answer(self, call: Call, target: str) -> Answered:
        """See Backend."""
        behaviour = self._engine.behaviour
        asked = self._wire.read(call, behaviour)
        if isinstance(asked, Page):
            return Answered(page=asked)
        if not isinstance(asked, Request):
            return Answered(page=self._wire.write(self._engine.look(asked), asked, behaviour))
        answer = self._engine.receive(asked)
        acted = answer.said is Said.MADE and not answer.replayed
        name = answer.thing.request.name if answer.thing is not None else asked.name
        return Answered(page=self._wire.write(answer, asked, behaviour), acted=(name,) if acted else ())

    def close(self) -> None:
        """Whoever still waits in it is let go."""
        self._engine.close()
