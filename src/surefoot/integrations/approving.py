"""A framework's own pause for a person, answered from the one inbox.

Frameworks pause in three ways: they end with a list of what waits, raise and run again, or await an answer. All three
ask here, once for each call of the model; the run ends while nobody has decided, and finds the decision when it is
replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..core.errors import Denied, UsageError
from ..core.values import encode_canonical
from .asking import Asks, ask, ask_async
from .gate import Gate
from .gated import place_of


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call that a framework has paused: what the model asked for."""

    name: str
    arguments: Mapping[str, Any]
    tool_call_id: str | None

    def artifact(self) -> dict[str, Any]:
        """What a person is shown and approves."""
        return {"tool": self.name, "arguments": dict(self.arguments)}

    def gate(self) -> Gate:
        """Where it is asked; UsageError outside a run."""
        place = place_of(self.name)
        if place is None:
            raise UsageError(
                f"tool {self.name!r} waits for approval, which belongs to a run: run the agent in a workflow that "
                "`Surefoot.run` runs"
            )
        name = f"pause:{self.name}"
        return Gate(
            place, name, encode_canonical(self.artifact(), f"the arguments of {self.name!r}"), self.tool_call_id
        )


def decide(asks: Asks, pauses: Sequence[Pause]) -> list[Denied | None]:
    """For each pause None when it was approved, or why it was denied. Suspends the run while one is undecided."""
    return [_decided(asks, pause) for pause in pauses]


def _decided(asks: Asks, pause: Pause) -> Denied | None:
    def act() -> Denied | None:
        try:
            ask(asks, pause.artifact())
        except Denied as denied:
            return denied
        return None

    return pause.gate().run(act)


async def decide_async(asks: Asks, pauses: Sequence[Pause]) -> list[Denied | None]:
    """The same; all of them are asked for before the run suspends."""

    async def one(pause: Pause, gate: Gate) -> Denied | None:
        async def act() -> Denied | None:
            try:
                await ask_async(asks, pause.artifact())
            except Denied as denied:
                return denied
            return None

        return await gate.run_async(act)

    gates = [pause.gate() for pause in pauses]
    answers = await asyncio.gather(*(one(p, g) for p, g in zip(pauses, gates, strict=True)), return_exceptions=True)
    decided: list[Denied | None] = []
    for answer in sorted(answers, key=lambda a: isinstance(a, Exception)):  # a signal goes before a failure
        if isinstance(answer, BaseException) and not isinstance(answer, Denied):
            raise answer
    for answer in answers:
        assert answer is None or isinstance(answer, Denied)
        decided.append(answer)
    return decided
