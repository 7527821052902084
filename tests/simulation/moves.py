"""Who may move, and how: the workers, the network, the receiver, a person, and time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from surefoot.core.commands import AskReceiver, Sleep
from surefoot.core.contract import Kind
from surefoot.core.effect import TERMINAL, Do, Event, Status
from surefoot.core.run import FINAL, RunDo, RunStatus
from surefoot.core.writes import Append, ClaimRun, DecideEffect, ParkUnasked, RecordEffect, TakeEffect, Verdict

from .protocol import IDLE, IN_FLIGHT_MAX, PERSON, WORKERS, Decided, Protocol, State, Step, Worker, with_worker
from .records import CURRENT, GONE, NOW, older
from .workers import DIGESTS, KEY, RECEIPT
from .world import age_network, age_receiver, arrive, show

DECISIONS = (
    Event(do=Do.HAPPENED, at=NOW, receipt=RECEIPT),
    Event(do=Do.DID_NOT_HAPPEN, at=NOW),
    Event(do=Do.ABANDON, at=NOW),
)


class Moves(Protocol):
    """The graph: `moves(state)` yields every next state; `breaks(state)` says what must not be."""

    def moves(self, state: State) -> Iterator[Step]:
        """Everything that can happen next."""
        for i in range(WORKERS):
            yield from self._worker(state, i, state.workers[i])
        yield from self._network(state)
        yield from self._person(state)
        if all(worker.at != "unsure" for worker in state.workers):
            yield ("time",), self._later(state), ""

    # --- workers --------------------------------------------------------------------------------------------------

    def _worker(self, state: State, i: int, worker: Worker) -> Iterator[Step]:
        yield ("crash", i), self._crashed(state, i), ""
        if worker.at == "idle":
            yield from self._idle(state, i)
            return
        match worker.at:
            case "claimed":
                yield from self._claimed(state, i, worker)
            case "loop":
                yield from self._loop(state, i, worker)
            case "send":
                yield from self._send(state, i, worker)
            case "wait":
                # From here to the commit nothing can tell the worker apart from one that still waits.
                yield from self._record_answer(detached(state, i), i, worker, "unknown")
                yield from self._interrupt(state, i, worker)
            case "answered":
                yield from self._record_answer(state, i, worker, worker.said)
            case "asked":
                hands = self.hands(i, worker.fence)
                write = hands.asked(self.effects[worker.effect], worker.said, worker.until)
                yield from self.commit(state, i, self.number(write, self.writes))
            case "unsure":
                yield from self.commit(state, i, worker.write, worker.until, again=True)
            case _:
                do = RunDo.SUCCEED if worker.at == "closing" else RunDo.RELEASE
                yield from self._end_run(state, i, worker, do)

    def _idle(self, state: State, i: int) -> Iterator[Step]:
        if not self.two_runs:
            if self.runs[state.run].status not in FINAL:
                claim = self.number(self.hands(i, CURRENT).claim(), self.writes)
                yield from self.commit(state, i, claim)
        elif not state.journals[i][1]:
            worker = IDLE._replace(at="claimed", fence=CURRENT)
            yield from self._claimed(with_worker(state, i, worker), i, worker)

    def _claimed(self, state: State, i: int, worker: Worker) -> Iterator[Step]:
        intents, _ = state.journals[self.journal_of[i]]
        hands = self.hands(i, worker.fence)
        yield from self.commit(state, i, self.number(hands.take(not intents), self.writes))
        if intents and self.drops:
            yield from self.commit(state, i, self.number(hands.park_unasked(), self.writes))

    def _next_of(self, i: int, fence: int, effect: int) -> tuple[Any, ...]:
        """What the real loop does with this effect: ("write", number, until), ("ask",), ("wait",) or ("end",)."""
        hands, before = self.hands(i, fence), self.effects[effect]
        command = hands.settle(before)
        if command is None:
            return ("end",)
        if isinstance(command, AskReceiver):
            return ("ask",)
        if isinstance(command, Sleep):
            return ("wait",)
        until = 0.0
        if isinstance(command, RecordEffect) and command.event is not None and command.event.do is Do.ATTEMPT:
            # The status is only lent: the flow is asked until when it would send, were this commit answered.
            until = hands.begin_until(before, replace(before, status=Status.ATTEMPTED))
        return "write", self.number(command, self.writes), until

    def _loop(self, state: State, i: int, worker: Worker) -> Iterator[Step]:
        match self.next_of(i, worker.fence, worker.effect):
            case ("write", write, until):
                yield from self.commit(state, i, write, until)
            case ("ask",):
                for found, receiver in show(self.setting, state.receiver):
                    asked = with_worker(state, i, worker._replace(at="asked", said=found, until=NOW))
                    yield ("lookup", i, found), asked._replace(receiver=receiver), ""
            case ("end",):
                yield from self._done(state, i, worker)
            case _:
                pass

    def _done(self, state: State, i: int, worker: Worker) -> Iterator[Step]:
        """The flow is over: the outcome goes to the journal if it is not there, and the run ends or waits."""
        effect = self.effects[worker.effect]
        if effect.status not in TERMINAL:
            yield from self._end_run(state, i, worker, RunDo.SUSPEND)
        elif state.journals[self.journal_of[i]][1]:
            yield from self._end_run(state, i, worker, RunDo.SUCCEED)
        else:
            write = self.hands(i, worker.fence).append(effect)
            yield from self.commit(state, i, self.number(write, self.writes))

    def _end_run(self, state: State, i: int, worker: Worker, do: RunDo) -> Iterator[Step]:
        if self.two_runs:
            yield ("done", i), with_worker(state, i, IDLE), ""
        else:
            write = self.hands(i, worker.fence).end(do)
            yield from self.commit(state, i, self.number(write, self.writes))

    def _send(self, state: State, i: int, worker: Worker) -> Iterator[Step]:
        yield from self._record_answer(state, i, worker, "unsent")
        yield from self._interrupt(state, i, worker)
        if worker.until < NOW or len(state.network) >= IN_FLIGHT_MAX:
            return
        effect = self.effects[worker.effect]
        deadline = effect.deadline_at if self.setting.flight_ends else 0.0
        right_key = effect.sent_key == self.sent_key
        request = (deadline, i, right_key, self.variants[i])
        after = with_worker(state, i, worker._replace(at="wait", until=0.0, marked=False))
        is_keyed = self.setting.contract.kind is Kind.KEYED
        after = after._replace(
            network=tuple(sorted((*state.network, request))),
            first_left=(state.first_left or NOW) if is_keyed else 0.0,
            left=1 if self.setting.contract.kind is Kind.OPAQUE else 0,
        )
        yield ("send", i), after, self._send_breaks(state, worker, request)

    def _send_breaks(self, state: State, worker: Worker, request: tuple[float, int, bool, int]) -> str:
        i, contract = request[1], self.setting.contract
        if state.effect < 0 or not worker.marked or not state.journals[self.journal_of[i]][0]:
            return "I3: a request left without a committed intent and attempt"
        if not request[2]:
            return "I2: a request left under another key"
        if DIGESTS[request[3]] != self.effects[state.effect].request_digest:
            return "I2: another request left under the same identity"
        if contract.kind is Kind.KEYED and state.first_left and state.first_left + contract.protected_seconds < NOW:
            return "I2: a request left when the key no longer protects"
        if contract.kind is Kind.OPAQUE and not contract.at_least_once and state.left:
            return "I2b: a second request left to a receiver that promises nothing"
        return ""

    def _record_answer(self, state: State, i: int, worker: Worker, said: str) -> Iterator[Step]:
        write = self.hands(i, worker.fence).answered(self.effects[worker.effect], said)
        yield from self.commit(state, i, self.number(write, self.writes))

    def _interrupt(self, state: State, i: int, worker: Worker) -> Iterator[Step]:
        if not self.unsure:
            return
        write = self.number(self.hands(i, worker.fence).interrupted(self.effects[worker.effect]), self.writes)
        yield from self.commit(detached(state, i), i, write)

    def _crashed(self, state: State, i: int) -> State:
        state = self.without_stamp(with_worker(detached(state, i), i, IDLE), i + 1)
        if state.effect >= 0 and self.effects[state.effect].owner == i + 1:
            effect = replace(self.effects[state.effect], owner=GONE)
            state = state._replace(effect=self.number(effect, self.effects))
        if self.runs[state.run].owner == i + 1:
            state = state._replace(run=self.number(replace(self.runs[state.run], owner=GONE), self.runs))
        return state

    def answered(self, state: State, i: int, write: int, done: Decided, until: float) -> State:
        """The state after worker `i` learned what became of its write."""
        made, verdict, worker = self.writes[write], done.verdict, state.workers[i]
        calm = worker._replace(write=-1, until=0.0, said="", effect=-1)
        after = IDLE
        match made:
            case ClaimRun() if verdict is Verdict.TOOK:
                after = calm._replace(at="closing" if state.journals[0][1] else "claimed", fence=CURRENT)
            case TakeEffect() if verdict is Verdict.BUSY and not self.two_runs:
                after = calm._replace(at="claimed")
            case TakeEffect() if verdict in (Verdict.DONE, Verdict.TOOK, Verdict.EXISTS):
                after = self._holding(calm, i, state.effect, 0.0)
            case RecordEffect() if verdict is Verdict.DONE and not made.release:
                after = self._holding(calm, i, state.effect, until)
            case RecordEffect() if made.release and verdict is not Verdict.FENCED and not self.two_runs:
                after = calm._replace(at="releasing", marked=False)
            case RecordEffect() if verdict is Verdict.EXISTS and not self.two_runs:
                after = calm._replace(at="claimed", marked=False)
            case Append() if verdict is Verdict.DONE and not self.two_runs:
                after = calm._replace(at="closing")
            case ParkUnasked() if verdict is Verdict.DONE and not self.two_runs:
                after = calm._replace(at="closing")
            case _:
                pass
        return with_worker(state, i, after)

    def _holding(self, worker: Worker, i: int, effect: int, until: float) -> Worker:
        """A worker that was just shown the effect as it stands."""
        held = replace(self.effects[effect], stamp=0, owner=0, holder="")
        number = self.number(held, self.effects)
        if held.status is not Status.ATTEMPTED:
            return worker._replace(at="loop", effect=number, marked=False)
        until = until or self.hands(i, worker.fence).first_begin_until(held)
        return worker._replace(at="send", effect=number, until=until)

    # --- the rest of the world ------------------------------------------------------------------------------------

    def _network(self, state: State) -> Iterator[Step]:
        for k, request in enumerate(state.network):
            if k and state.network[k - 1] == request:
                continue
            rest = state.network[:k] + state.network[k + 1 :]
            j = request[1]
            for answer, receiver in arrive(self.setting, state.receiver, request):
                after = state._replace(network=rest, receiver=receiver)
                if j >= 0:
                    after = with_worker(after, j, state.workers[j]._replace(at="answered", said=answer))
                yield ("arrive", j, answer, receiver[0] - state.receiver[0]), after, ""

    def _person(self, state: State) -> Iterator[Step]:
        """A person tells the truth about what is parked; about anything else, the store must not listen."""
        if state.effect < 0:
            return
        parked = self.effects[state.effect].status is Status.PARKED
        on_its_way = bool(state.network) or any(w.at == "send" and w.until >= NOW for w in state.workers)
        truth = (state.receiver[0] > 0, state.receiver[0] == 0 and not on_its_way, True)
        for event, is_true in zip(DECISIONS, truth, strict=True):
            if parked and not is_true:
                continue
            write = self.number(DecideEffect(key=KEY, event=event, stamp=PERSON), self.writes)
            done = self.decided(write, state.effect, state.run, state.journals, False, False)
            yield ("person", event.do.value), self.applied(state, WORKERS, done), done.broken

    def _later(self, state: State) -> State:
        workers = tuple(
            w._replace(effect=self.aged_effect(w.effect), until=older(w.until, 3 if w.at == "asked" else 1))
            for w in state.workers
        )
        network = age_network(state.network) if self.setting.flight_ends else state.network
        return state._replace(
            effect=self.aged_effect(state.effect),
            workers=workers,
            network=network,
            receiver=age_receiver(self.setting, state.receiver),
            first_left=older(state.first_left),
        )

    # --- what must never be ---------------------------------------------------------------------------------------

    def breaks(self, state: State) -> str:
        """The invariant that this state breaks, or ""."""
        performed = state.receiver[0]
        if performed > 1:
            return "I2: the receiver performed it twice"
        if state.effect < 0:
            return "I3: performed without a record" if performed else ""
        status = self.effects[state.effect].status
        if status is Status.CONFIRMED and not performed:
            return "I3: it is recorded as confirmed, and never happened"
        if status is Status.REFUSED and performed:
            return "I3: it is recorded as refused, and happened"
        return ""

    def at_rest(self, state: State) -> bool:
        """True if the effect has come to an end, or stands parked where a person sees it."""
        if state.effect < 0:
            return False
        status = self.effects[state.effect].status
        if status not in TERMINAL and status is not Status.PARKED:
            return False
        run = self.runs[state.run].status
        return self.two_runs or run in FINAL or run is RunStatus.WAITING


def detached(state: State, i: int) -> State:
    """Nobody waits any more for what worker `i` has sent."""
    if all(r[1] != i for r in state.network):
        return state
    network = tuple(sorted((r[0], -1, *r[2:]) if r[1] == i else r for r in state.network))
    return state._replace(network=network)  # type: ignore[arg-type]
