"""What a twin does with one request: the receiver's contract, on a clock that the test moves, with faults on demand.

Every arrival, act, repeat, refusal and question is a line in the ledger that is on disk before an answer leaves. One
lock guards everything, so what happened first is what the ledger says first; only a request that is held gives it up.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import replace

from ...core.errors import UsageError
from ..ledger import Ledger, Line
from .behaviour import Behaviour, InFlight, Late, Said
from .classes import RULES, Known, MonotonicSequence, Rules, SingleUseSecret, TwoStepCommit, digest_of
from .messages import Answer, Fault, Leaves, Question, Request, Thing

TOO_MANY = 429
LEAVES = {
    Fault.LOST_ANSWER: Leaves.SILENT,
    Fault.LATE: Leaves.SILENT,
    Fault.RESET: Leaves.RESET,
    Fault.UNREADABLE: Leaves.UNREADABLE,
}
LOOKUP_FAULTS = (Fault.LOST_ANSWER, Fault.RESET, Fault.ERROR_BEFORE, Fault.UNREADABLE, Fault.LIMITED)


class Closed(Exception):
    """The twin was closed while this request waited in it."""


class Engine:
    """One receiver's state. Several threads may call it; `now` gives seconds since the epoch."""

    def __init__(self, behaviour: Behaviour, ledger: Ledger, now: Callable[[], float]) -> None:
        """What the ledger holds already is history, and is not remembered as keys."""
        self.behaviour, self.ledger, self.now = behaviour, ledger, now
        self.hides = False
        self._changed = threading.Condition()
        made = {sort: RULES[sort]() for sort in dict.fromkeys(behaviour.operations.values())}
        self._rules: dict[str, Rules] = {name: made[sort] for name, sort in behaviour.operations.items()}
        self._known: dict[Hashable, Known] = {}
        self._last: dict[Hashable, int] = {}
        self._things: list[Thing] = []
        self._faults: deque[Fault] = deque()
        self._lookup_faults: deque[Fault] = deque()
        self._seen: Counter[str] = Counter()
        self._released = 0
        self._waiting = 0
        self._closed = False

    # --- what a test does -------------------------------------------------------------------------------------------

    def next(self, *faults: Fault | str, lookups: bool = False) -> None:
        """The next requests (or lookups) meet these, one each, in order; those after them are well served."""
        wanted = [_fault(fault) for fault in faults]
        if lookups and (bad := [fault for fault in wanted if fault not in (*LOOKUP_FAULTS, Fault.NONE)]):
            raise UsageError(f"a lookup cannot meet {bad[0]}; it can meet {', '.join(LOOKUP_FAULTS)}")
        with self._changed:
            (self._lookup_faults if lookups else self._faults).extend(wanted)

    def release(self) -> int:
        """Let everything go on that is held or late; how many they were. They have acted when this returns."""
        with self._changed:
            count = self._waiting
            self._released += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting)
            return count

    def finish(self, value: str) -> None:
        """Close (remove, resolve, deliver) the thing with this key, marker, id or name: its key no longer protects."""
        with self._changed:
            found = self._matching(Question(value=value))
            if not found:
                raise UsageError(f"{self.behaviour.name}: nothing was made under {value!r}, so nothing can be finished")
            for thing in found:
                thing.open = False

    def issue(self) -> str:
        """A new token, for receivers of secrets."""
        with self._changed:
            rules = next((rules for rules in self._rules.values() if isinstance(rules, SingleUseSecret)), None)
            if rules is None:
                raise UsageError(f"{self.behaviour.name} issues no secrets; it has {', '.join(self._rules)}")
            return rules.issue(len(rules.issued) + 1_000_000)

    def events(self) -> list[Thing]:
        """What the receiver has told by event until now."""
        with self._changed:
            return [thing for thing in self._things if self._is_shown(thing, None)]

    def wait_for(self, what: str, count: int = 1, *, timeout: float = 30.0) -> None:
        """Return once the ledger holds `count` lines of this kind; TimeoutError after `timeout` real seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._seen[what] >= count, timeout):
                seen = dict(self._seen)
                raise TimeoutError(f"{self.behaviour.name}: expected {count} x {what!r}, found {seen} in the ledger")

    def close(self) -> None:
        """End everything that waits; what was held never acts."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # --- what arrives -----------------------------------------------------------------------------------------------

    def receive(self, request: Request) -> Answer:
        """One request arrives; what it did is durable when this returns. Raises Closed."""
        with self._changed:
            if not request.name:
                request = replace(request, name=f"{request.operation}:{digest_of(request.payload)}")
            self._note("arrived", request)
            refused = self._turn_away(request)
            if refused is not None:
                return self._noted("refused", request, refused)
            fault = self._faults.popleft() if self._faults else Fault.NONE
            match fault:
                case Fault.LOST_REQUEST:
                    return Answer(said=Said.ERROR, leaves=Leaves.SILENT)
                case Fault.ERROR_BEFORE:
                    return Answer(said=Said.ERROR, text="something went wrong before it began")
                case Fault.BUSY:
                    return Answer(said=Said.NOT_PROCESSED, text="nothing was processed; send it again")
                case Fault.LIMITED:
                    return Answer(said=Said.ERROR, status=TOO_MANY, text="too many requests")
                case Fault.DOUBLE:
                    first = self._process(request, Fault.NONE)
                    self._note("arrived", request)
                    self._process(request, Fault.NONE)
                    return first
                case _:
                    answer = self._process(request, fault)
                    return replace(answer, leaves=LEAVES.get(fault, Leaves.WHOLE))

    def look(self, question: Question) -> Answer:
        """One lookup arrives. What is asked for by its own id is shown at once."""
        with self._changed:
            self._seen["looked_up"] += 1
            self.ledger.add(Line(what="looked_up", name=question.value, at=self.now(), key=question.value))
            self._changed.notify_all()
            problem = self._no_lookup(question)
            if problem:
                return Answer(said=Said.UNKNOWN, text=problem)
            fault = self._lookup_faults.popleft() if self._lookup_faults else Fault.NONE
            if fault in (Fault.ERROR_BEFORE, Fault.LIMITED):
                return Answer(said=Said.ERROR, status=TOO_MANY if fault is Fault.LIMITED else 0, text="ask again")
            found = self._matching(question)
            shown = tuple(
                thing
                for thing in found
                if (thing.open or question.closed)
                and self._is_shown(thing, 0.0 if question.value == thing.id else question.lag_seconds)
            )
            return Answer(said=Said.SHOWN, found=shown, leaves=LEAVES.get(fault, Leaves.WHOLE))

    # --- how it is decided ------------------------------------------------------------------------------------------

    def _turn_away(self, request: Request) -> Answer | None:
        if request.operation not in self._rules:
            return Answer(said=Said.UNKNOWN, text=self._no_operation(request.operation))
        malformed = self.behaviour.why_malformed(request.key)
        if malformed:
            return Answer(said=Said.MALFORMED, text=f"{self.behaviour.name}, {request.operation}: {malformed}")
        return None

    def _no_operation(self, name: str) -> str:
        known = ", ".join(sorted(self._rules))
        return f"{self.behaviour.name} has no operation {name!r}; it has {known}"

    def _no_lookup(self, question: Question) -> str:
        if question.operation and question.operation not in self._rules:
            return self._no_operation(question.operation)
        rules = [self._rules[question.operation]] if question.operation else list(self._rules.values())
        if not self.behaviour.shows or not any(one.shows for one in rules):
            return f"{self.behaviour.name} cannot be asked about {question.operation or 'anything'}: it has no lookup"
        return ""

    def _is_shown(self, thing: Thing, lag_seconds: float | None) -> bool:
        lag = self.behaviour.lag_seconds if lag_seconds is None else lag_seconds
        return not self.hides and thing.made_at + lag <= self.now()

    def _matching(self, question: Question) -> list[Thing]:
        def names(thing: Thing) -> tuple[str, ...]:
            made = thing.request
            return made.key, made.marker, thing.id, made.name

        return [
            thing
            for thing in self._things
            if question.value in ("", *names(thing))
            and question.operation in ("", thing.request.operation)
            and question.scope in ("", thing.request.scope)
        ]

    def _recall(self, rules: Rules, request: Request) -> Known | None:
        """What is remembered of this request; None when nothing is, or no longer."""
        identity = rules.identity(request)
        if identity is None:
            return None
        known = self._known.get(identity)
        if isinstance(rules, MonotonicSequence) and known is None:
            last = self._last.get((request.scope, request.marker), -1)
            return Known(request=request, since=self.now(), running=False) if int(request.key) <= last else None
        if known is None or known.running:
            return known
        forgets = self.behaviour.late is Late.EXECUTES_AGAIN or isinstance(rules, SingleUseSecret)
        if forgets and rules.is_over(known, self.now(), self.behaviour):
            del self._known[identity]
            return None
        return known

    def _process(self, request: Request, fault: Fault) -> Answer:
        rules = self._rules[request.operation]
        if request.closes:
            return self._close(request)
        known = self._recall(rules, request)
        while known is not None and known.running:
            if self.behaviour.in_flight is InFlight.REJECT:
                return self._noted("refused", request, Answer(said=Said.IN_FLIGHT, text="the first one still runs"))
            if self.behaviour.in_flight is InFlight.BOTH:
                known = None
                break
            self._wait(lambda running=known: not running.running)
            known = self._recall(rules, request)
        if known is not None:
            return self._repeat(rules, known, request, fault)
        unknown = rules.unknown(request)
        if unknown is not None:
            return self._noted("refused", request, unknown)
        if isinstance(rules, TwoStepCommit) and request.key and not self._draft(request):
            return self._noted("refused", request, Answer(said=Said.EXISTS, text=f"there is no draft {request.key}"))
        return self._perform(rules, request, fault)

    def _close(self, request: Request) -> Answer:
        found = [thing for thing in self._matching(Question(value=request.closes, scope=request.scope)) if thing.open]
        for thing in found:
            thing.open = False
        last = found[-1] if found else None
        answer = Answer(said=Said.MADE if found else Said.DROPPED, thing=last)
        return self._noted("performed" if found else "repeated", request, answer)

    def _draft(self, request: Request) -> Thing | None:
        return next((t for t in self._things if t.id == request.key and not t.request.key), None)

    def _repeat(self, rules: Rules, known: Known, request: Request, fault: Fault) -> Answer:
        behaviour, now = self.behaviour, self.now()
        if isinstance(rules, SingleUseSecret):
            if rules.is_spent(known, now, behaviour):
                return self._noted("refused", request, Answer(said=Said.SPENT, text="this token was used"))
        elif rules.is_over(known, now, behaviour):
            return self._noted("refused", request, Answer(said=Said.EXPIRED, text="this key is too old"))
        if behaviour.compares_payload and known.request.payload != request.payload:
            text = "this key came with other content before"
            return self._noted("refused", request, Answer(said=Said.CHANGED_PAYLOAD, thing=known.thing, text=text))
        if known.stored is not None:
            return self._noted("repeated", request, replace(known.stored, replayed=True))
        if rules.writes_again(known, request) and known.thing is not None:
            known.request = known.thing.request = request
            self._note("performed", request, known.thing.number)
            return rules.repeat(known, request)
        answer = rules.repeat(known, request)
        self._note("repeated", request, known.thing.number if known.thing else 0)
        return Answer(said=Said.ERROR, text="something went wrong") if fault is Fault.ERROR_AFTER else answer

    def _perform(self, rules: Rules, request: Request, fault: Fault) -> Answer:
        identity, known = rules.identity(request), Known(request=request, since=self.now())
        if identity is not None:
            self._known[identity] = known
        try:
            if fault in (Fault.LATE, Fault.HOLD):
                self._hold()
            if fault in (Fault.REFUSED, Fault.ERROR_DURING):
                return self._fail(identity, known, fault)
            thing = known.thing = self._make(rules, request)
        finally:
            known.running = False
            self._changed.notify_all()
        if fault is not Fault.ERROR_AFTER:
            return Answer(said=Said.MADE, thing=thing)
        if self.behaviour.stores_errors:
            known.stored = Answer(said=Said.STORED_ERROR, text="the same error as before")
        return Answer(said=Said.ERROR, text="something went wrong after it was done")

    def _fail(self, identity: Hashable | None, known: Known, fault: Fault) -> Answer:
        """It began and nothing came of it; the answer is kept under the key, or the key is free again."""
        refused = fault is Fault.REFUSED
        answer = Answer(said=Said.REFUSED if refused else Said.ERROR, text="declined" if refused else "it was undone")
        if self.behaviour.stores_refusals if refused else self.behaviour.stores_errors:
            known.stored = answer if refused else replace(answer, said=Said.STORED_ERROR)
        elif identity is not None:
            self._known.pop(identity, None)
        return self._noted("refused", known.request, answer)

    def _make(self, rules: Rules, request: Request) -> Thing:
        number, now = len(self._things) + 1, self.now()
        thing = Thing(number=number, request=request, made_at=now, facts=rules.made(request, number))
        draft = self._draft(request) if isinstance(rules, TwoStepCommit) and request.key else None
        if draft is not None:
            draft.open = False
        self._things.append(thing)
        if isinstance(rules, MonotonicSequence) and request.key:
            self._last[request.scope, request.marker] = int(request.key)
        self._note(rules.acts(request), request, number)
        return thing

    # --- waiting and writing down -----------------------------------------------------------------------------------

    def _hold(self) -> None:
        """Stand still, as a request in flight does, until it is released."""
        released = self._released
        self._waiting += 1
        self._seen["held"] += 1
        self._changed.notify_all()
        try:
            self._wait(lambda: self._released > released)
        finally:
            self._waiting -= 1
            self._changed.notify_all()

    def _wait(self, until: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: until() or self._closed)
        if self._closed:
            raise Closed

    def _noted(self, what: str, request: Request, answer: Answer) -> Answer:
        self._note(what, request, answer.thing.number if answer.thing else 0)
        return answer

    def _note(self, what: str, request: Request, number: int = 0) -> None:
        body = json.dumps(request.payload, sort_keys=True)
        self.ledger.add(Line(what=what, name=request.name, at=self.now(), key=request.key, body=body, number=number))
        self._seen[what] += 1
        self._changed.notify_all()


def _fault(name: Fault | str) -> Fault:
    try:
        return Fault(name)
    except ValueError:
        raise UsageError(f"a twin knows no fault {name!r}; it knows {', '.join(Fault)}") from None
