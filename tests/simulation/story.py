"""A way through the graph, told as a person would tell it."""

from __future__ import annotations

from typing import Any

from surefoot.core.effect import Do
from surefoot.core.writes import Append, ClaimRun, EndRun, ParkUnasked, RecordEffect, TakeEffect, Verdict, Write

from .explore import Found
from .moves import Moves

NAMES = "AB"
_EVENTS = {
    Do.ATTEMPT: "records that it is about to send (again)",
    Do.CONFIRM: "records that it happened",
    Do.REFUSE: "records that it was refused",
    Do.UNSEND: "records that it was certainly not sent",
    Do.REDOUBT: "records that this try was not sent, and that an earlier one is still in doubt",
    Do.LOSE: "gets no answer that proves anything, and records the doubt",
    Do.ABSENT: "records that the receiver clearly shows nothing",
    Do.PARK: "parks it for a person",
    Do.GIVE_UP: "gives it up as never sent",
}
_VERDICTS = {
    Verdict.FENCED: "but is fenced: the run is another's",
    Verdict.BUSY: "but another worker holds it",
    Verdict.ENDED: "but the run has ended",
    Verdict.ILLEGAL: "but the store says that this is no legal move",
    Verdict.MISSING: "but there is nothing",
}


def tell(graph: Moves, found: Found) -> str:
    """The story, a sentence a line, and the rule that it breaks."""
    lines = [f"{n:3}. {_sentence(graph, step)}" for n, step in enumerate(found.way, 1)]
    where = "two runs, one identity" if graph.two_runs else "two workers, one run"
    return "\n".join([f"{graph.setting.name}; {where}:", *lines, f"  => {found.broken}"])


def _sentence(graph: Moves, step: tuple[Any, ...]) -> str:
    match step:
        case ("commit" | "takeover" as how, i, write, verdict, again):
            late = "tries the write again whose outcome it did not learn: it " if again else ""
            slept = f"finds that {NAMES[1 - i]} slept past its lease, and " if how == "takeover" else ""
            return f"{NAMES[i]} {slept}{late}{_written(graph.writes[write], verdict)}."
        case ("unsure, applied", i, write):
            return f"{NAMES[i]} {_written(graph.writes[write], Verdict.DONE)}; it is committed, and nobody says so."
        case ("unsure, not applied", i, write):
            return f"{NAMES[i]} {_written(graph.writes[write], Verdict.DONE)}; it is not committed, and nobody says so."
        case ("crash", i):
            return f"{NAMES[i]} dies."
        case ("send", i):
            return f"{NAMES[i]} sends the request."
        case ("arrive", j, answer, performed):
            whose = f"{NAMES[j]}'s request arrives" if j >= 0 else "A request that nobody waits for any more arrives"
            did = "the receiver performs it" if performed else "the receiver does nothing"
            return f"{whose}: {did} and answers {answer!r}."
        case ("lookup", i, found):
            return f"{NAMES[i]} asks the receiver, which shows: {found}."
        case ("person", decision):
            return f"A person decides: {str(decision).replace('_', ' ')}."
        case ("time",):
            return "Two seconds pass."
        case ("done", i):
            return f"{NAMES[i]} is done with it."
        case _:
            return str(step)


def _written(write: Write, verdict: Verdict) -> str:
    end = _VERDICTS.get(verdict, "")
    match write:
        case ClaimRun():
            text = "claims the run"
        case TakeEffect():
            text = {
                Verdict.DONE: "commits the intent and its first attempt",
                Verdict.TOOK: "takes over the effect",
                Verdict.EXISTS: "finds the effect settled or parked",
                Verdict.DISAGREES: "is told that another request stands under this identity",
            }.get(verdict, "asks for the effect")
        case RecordEffect(event=None):
            text = "records what the receiver showed"
        case RecordEffect(event=event) if event is not None:
            text = _EVENTS.get(event.do, str(event.do))
            end = "but the effect has moved on" if verdict is Verdict.EXISTS else end
        case ParkUnasked():
            text = "runs code that no longer asks for the effect, and puts it aside"
        case Append():
            text = "puts the outcome into the run's journal"
        case EndRun():
            text = f"ends its work on the run ({write.do})"
        case _:
            text = type(write).__name__
    return f"{text}, {end}" if end else text
