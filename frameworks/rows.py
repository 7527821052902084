"""Where the kill strikes. The first six are the matrix; the others are for arms that declare them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from surefoot.testing.models import Ask, Planner, Say, ToolCall, checkout, checkout_at_once

from . import planners


@dataclass(frozen=True, kw_only=True)
class Kill:
    """At the model or at an operation of the shop, at the nth request, before or after it is recorded."""

    at: str
    when: str
    number: int = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: where the kill strikes (or in the tool, when it holds the reply), and what the model does."""

    name: str
    kill: Kill | None = None
    tool_end: str = ""
    planner: Callable[[Planner], Planner] = lambda usual: usual
    words: str = ""
    person: bool = False

    @property
    def kills(self) -> int:
        return int(self.kill is not None or bool(self.tool_end))


def at_once(usual: Planner) -> Planner:
    """All that is missing in one turn."""
    return planners.AT_ONCE.get(usual, checkout_at_once)


def reordered(usual: Planner) -> Planner:
    """All in one turn, and the other way round each time that it is asked: a model may answer so."""
    lock, turns = threading.Lock(), [0]

    def planner(ask: Ask) -> Say:
        say = at_once(usual)(ask)
        if len(say.calls) < 2:
            return say
        with lock:
            turns[0] += 1
        return say if turns[0] % 2 else Say(calls=say.calls[::-1])

    return planner


def clock(usual: Planner) -> Planner:
    """First asks for the time, which is never the same twice."""

    def planner(ask: Ask) -> Say:
        if "clock" in ask.tools and "the time is" not in ask.text:
            return Say(calls=(ToolCall(name="clock"),))
        return usual(ask)

    return planner


ROWS = {
    row.name: row
    for row in (
        Row(name="control", words="nothing is killed"),
        Row(name="before", kill=Kill(at="charge", when="before"), words="the charge arrives, nothing is done"),
        Row(name="gap", kill=Kill(at="charge", when="after"), words="charged and fsynced, the reply never leaves"),
        Row(name="tool end", tool_end="charge", words="the tool has the reply, the framework has not"),
        Row(name="returned", kill=Kill(at="model", when="before", number=3), words="at the next model call"),
        Row(
            name="next reply lost",
            kill=Kill(at="model", when="after", number=3),
            words="that call is paid, its reply lost",
        ),
        Row(
            name="first reply lost",
            kill=Kill(at="model", when="after", number=1),
            words="the first call is paid, its reply lost",
        ),
        Row(
            name="in doubt",
            kill=Kill(at="charge", when="after"),
            person=True,
            words="the gap, at a shop that offers nothing: the run stops, a person looks, it goes on",
        ),
        Row(name="parallel control", planner=at_once, words="three tools in one turn"),
        Row(
            name="parallel gap",
            planner=at_once,
            kill=Kill(at="charge", when="after"),
            words="three tools in one turn, gap",
        ),
        Row(
            name="parallel returned",
            planner=at_once,
            kill=Kill(at="model", when="before", number=2),
            words="three tools in one turn, at the next model call",
        ),
        Row(
            name="re-ordered",
            planner=reordered,
            kill=Kill(at="charge", when="after"),
            words="three tools in one turn; asked again, the model would name them the other way round",
        ),
        Row(
            name="clock",
            planner=clock,
            kill=Kill(at="model", when="before", number=4),
            words="a tool that tells the time, returned",
        ),
    )
}

USUAL: dict[str, Planner] = {"checkout": checkout, **planners.PLANNERS}
