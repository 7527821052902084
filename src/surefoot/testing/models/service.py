"""A scripted model without a socket: it numbers what arrives, refuses what real endpoints refuse, and writes down what
is paid before anything of it can leave.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..ledger import Ledger, Line
from .anthropic import MESSAGES
from .chat import CHAT
from .gemini import GEMINI
from .responses import RESPONSES, items_of, output_of
from .words import Ask, Dialect, Event, Generation, Json, Planner, counted


@dataclass(frozen=True, kw_only=True)
class Meets:
    """What one request meets instead of a plain answer. At most one of these is given.

    `error` is answered with that status, nothing is paid; `retry_after` (seconds) goes with it. `error_event`: a stream
    begins with 200, gives so many events and then fails inside the stream; nothing is paid. `cut`: paid, and the
    connection breaks after so many events (half-way, in an answer that does not stream). `kill`: the victim dies before
    anything is recorded, or after it was paid and before anything leaves. `model`: only a request for that model.
    """

    error: int = 0
    retry_after: float | None = None
    error_event: int | None = None
    cut: int | None = None
    kill: Literal["", "before", "after"] = ""
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """An answer in one piece; cut off half-way if `cut`."""

    status: int
    body: Json
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Stream:
    """An answer in events: those given, then the end of the stream, or none if it is `cut`."""

    events: Iterator[Event]
    headers: dict[str, str]
    cut: bool = False


class Silence:
    """No answer: whoever asked is dead."""


def dialect_of(path: str) -> Dialect | None:
    """Which endpoint a path belongs to, whatever stands in front of it."""
    if path.endswith("/chat/completions"):
        return CHAT
    if path.endswith("/responses"):
        return RESPONSES
    if path.endswith("/messages"):
        return MESSAGES
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return GEMINI
    return None


class Service:
    """All endpoints of one model, over one record. Safe to call from several threads."""

    def __init__(self, planner: Planner, *, record: Path | None = None, strict: bool = True) -> None:
        """`strict` refuses with 400 what the real endpoints refuse; otherwise that is answered and noted."""
        self.planner, self.strict = planner, strict
        self.ledger = Ledger(record)
        self.asks: list[Ask] = []
        self._lock = threading.Lock()
        self._arrived = 0
        self._next: list[Meets] = []
        self._at: dict[int, Meets] = {}
        self._stored: dict[str, list[Json]] = {}

    def arrive(self) -> int:
        """The number of a request, from 1; taken once, when it arrives, so that none can hide behind another."""
        with self._lock:
            self._arrived += 1
            return self._arrived

    def next(self, *meets: Meets) -> None:
        """The next requests meet these, one each."""
        with self._lock:
            self._next += meets

    def at(self, number: int, meets: Meets) -> None:
        """The request of that number meets this."""
        with self._lock:
            self._at[number] = meets

    def read(self, dialect: Dialect, number: int, body: Json, path: str) -> Ask:
        """The request in our words, with what it continues."""
        return replace(dialect.read(self._continued(body), path), number=number)

    def meets(self, ask: Ask) -> Meets:
        """What this request meets; asked once for each."""
        with self._lock:
            self.asks.append(ask)
            if ask.number in self._at:
                return self._at.pop(ask.number)
            for place, meets in enumerate(self._next):
                if meets.model in ("", ask.model):
                    return self._next.pop(place)
        return Meets()

    def fails(self, dialect: Dialect, ask: Ask, meets: Meets, *, authorised: bool) -> Whole | Stream | None:
        """The failure that this request gets, or None: it will be answered."""
        if meets.error:
            self._note("failed", ask, {"status": meets.error})
            headers = {} if meets.retry_after is None else retry_headers(meets.retry_after)
            return Whole(status=meets.error, body=dialect.error(meets.error, "injected failure"), headers=headers)
        if self.strict and not authorised:
            self._note("refused", ask, {"status": 401})
            return Whole(status=401, body=dialect.error(401, "No API key was given: send one, any will do here."))
        reason = self._lost(ask) or dialect.refusal(ask)
        if reason:
            self._note("refused" if self.strict else "refusable", ask, {"reason": reason})
            if self.strict:
                return Whole(status=400, body=dialect.error(400, reason))
        if meets.error_event is not None and ask.stream:
            self._note("failed", ask, {"after_events": meets.error_event})
            return Stream(events=self._failing(dialect, ask, meets.error_event), headers={})
        return None

    def answer(self, dialect: Dialect, ask: Ask, meets: Meets) -> Whole | Stream:
        """One paid answer; the record of it is durable when this returns."""
        made = self._generate(dialect, ask)
        self._note("paid", ask, {"model": ask.model, "tokens": tokens_of(made), "calls": [c.name for c in made.calls]})
        if dialect is RESPONSES and ask.body.get("store", True):
            with self._lock:
                self._stored[f"resp_{made.nonce}"] = [*items_of(ask.body), *output_of(made)]
        headers = {dialect.request_id_header: f"req_{made.nonce}"}
        if not ask.stream:
            return Whole(status=200, body=dialect.whole(made), headers=headers, cut=meets.cut is not None)
        events = dialect.events(made)
        if meets.cut is None:
            return Stream(events=events, headers=headers)
        return Stream(events=_first(events, meets.cut), headers=headers, cut=True)

    def paid(self) -> list[Line]:
        """The answers that were paid."""
        return [line for line in self.ledger.lines() if line.what == "paid"]

    def _generate(self, dialect: Dialect, ask: Ask) -> Generation:
        say = self.planner(ask)
        nonce = uuid.uuid4().hex
        calls = tuple(replace(call, id=dialect.call_id(nonce, place)) for place, call in enumerate(say.calls))
        return Generation(
            ask=ask,
            text=say.text,
            thinking=say.thinking,
            calls=calls,
            usage=counted(ask, say),
            nonce=nonce,
            created=int(time.time()),
            truncated=say.truncated,
        )

    def _failing(self, dialect: Dialect, ask: Ask, after: int) -> Iterator[Event]:
        yield from _first(dialect.events(self._generate(dialect, ask)), after)
        yield dialect.error_event(500, "injected failure in the stream")

    def _continued(self, body: Json) -> Json:
        before = body.get("previous_response_id")
        with self._lock:
            held = self._stored.get(str(before)) if before else None
        return body if held is None else {**body, "input": [*held, *items_of(body)]}

    def _lost(self, ask: Ask) -> str:
        before = ask.body.get("previous_response_id")
        if not before or str(before) in self._stored:
            return ""
        return f"Previous response with id '{before}' not found."

    def _note(self, what: str, ask: Ask, told: Json) -> None:
        digest = hashlib.sha256(json.dumps(ask.body, sort_keys=True).encode()).hexdigest()[:32]
        body = json.dumps(told)
        self.ledger.add(Line(what=what, name=ask.api, at=time.time(), key=digest, body=body, number=ask.number))


def tokens_of(made: Generation) -> Json:
    """Tokens, as the record keeps them."""
    used = made.usage
    return {"input": used.input, "output": used.output, "cached": used.cached, "reasoning": used.reasoning}


def retry_headers(seconds: float) -> dict[str, str]:
    """When to come back: in whole seconds, as the standard has it, and in milliseconds, which the SDKs prefer."""
    return {"retry-after": str(-int(-seconds // 1)), "retry-after-ms": str(int(seconds * 1000))}


def _first(events: Iterator[Event], count: int) -> Iterator[Event]:
    for _, event in zip(range(count), events, strict=False):
        yield event
