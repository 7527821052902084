"""Twins: receivers on this machine that behave, and misbehave, as the real ones do. See `docs/twins.md`."""

from .behaviour import Behaviour, InFlight, Late, Said, Sort
from .clock import SharedClock
from .engine import Engine
from .messages import Answer, Call, Fault, Leaves, Page, Question, Request, Thing, Wire
from .plain import PlainWire
from .twin import Twin

__all__ = [
    "Answer",
    "Behaviour",
    "Call",
    "Engine",
    "Fault",
    "InFlight",
    "Late",
    "Leaves",
    "Page",
    "PlainWire",
    "Question",
    "Request",
    "Said",
    "SharedClock",
    "Sort",
    "Thing",
    "Twin",
    "Wire",
]
