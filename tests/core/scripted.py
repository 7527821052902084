"""A driver that answers a flow from a list, and calls that only have names: what the tests of flows share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from msgspec.structs import replace

from surefoot.core.commands import AskReceiver, Command, Commit, Flow, Look, Now, Record, RenewLease, SendEffect, Sleep
from surefoot.core.contract import Contract
from surefoot.core.effect import Evidence
from surefoot.core.flows import INLINE_BYTES, RunState
from surefoot.core.journal import Branch, Draft
from surefoot.core.outcome import Answered
from tests.core.support import KEYED, Rows, make_journal, seen_by

STAMPS = count(1)
"""Unique to each write, whoever makes it."""


class Script:
    """Drives a flow to its end: an exception in the list is thrown in."""

    def __init__(self, flow: Flow[Any], *answers: Any) -> None:
        self.commands: list[Command[Any]] = []
        self.result: Any = None
        self.raised: BaseException | None = None
        left = list(answers)
        move: Callable[[Any], Any] = flow.send
        answer: Any = None
        while True:
            try:
                command = move(answer)
            except StopIteration as stop:
                self.result = stop.value
                break
            except BaseException as error:
                self.raised = error
                break
            self.commands.append(command)
            assert left, f"the flow asked for more than was answered: {command}"
            answer = left.pop(0)
            move = flow.throw if isinstance(answer, BaseException) else flow.send
        assert not left, f"the flow ended with {self.result!r} or {self.raised!r}; nobody asked for {left}"


class World:
    """Answers a flow: commits are decided over `rows`, `Sleep` moves the clock, the receiver answers from a list.

    `story` is every command in order, a word or two each; `sent` and `renewed` are the commands that matter in full.
    """

    def __init__(self, rows: Rows, *answers: Answered | Evidence | BaseException, at: float = 100.0) -> None:
        self.rows, self.left, self.at = rows, list(answers), at
        self.story: list[str] = []
        self.sent: list[SendEffect] = []
        self.renewed: list[float] = []
        self.result: Any = None
        self.raised: BaseException | None = None
        self.before_commit: Callable[[Commit], None] = lambda command: None

    def drive(self, flow: Flow[Any]) -> World:
        """To its end; `result` or `raised` says how it ended."""
        move: Callable[[Any], Any] = flow.send
        answer: Any = None
        try:
            while True:
                answer = self.answer(move(answer))
                move = flow.throw if isinstance(answer, BaseException) else flow.send
        except StopIteration as stop:
            self.result = stop.value
        except BaseException as error:
            if isinstance(error, AssertionError):
                raise
            self.raised = error
        assert not self.left, f"nobody asked for {self.left}"
        return self

    def answer(self, command: Command[Any]) -> Any:
        """What the world answers to one command."""
        match command:
            case Commit(write):
                self.before_commit(command)
                answer = write.decide(self.rows)
                event = getattr(write, "event", None)
                self.story.append(
                    f"{type(write).__name__} {event.do if event else ''}: {answer.verdict}".replace(" :", ":")
                )
                return answer
            case Look(suspect):
                self.story.append("Look")
                return seen_by(1, at=self.at, gone=frozenset({suspect} - {0, 2}))
            case Now():
                self.story.append("Now")
                return self.at
            case Sleep(seconds):
                self.story.append(f"Sleep {seconds:g}")
                self.at += seconds
                return None
            case RenewLease(until):
                self.story.append("RenewLease")
                self.renewed.append(until)
                return None
            case Record(draft):
                self.story.append(f"Record {draft.slot}")
                self.rows.append("r", draft)
                return None
            case SendEffect():
                self.sent.append(command)
                self.story.append("Send")
            case AskReceiver():
                self.story.append("Ask")
            case _:
                raise AssertionError(f"nobody answers {command}")
        assert self.left, f"the receiver was asked once more than the test says; so far: {self.story}"
        answer = self.left.pop(0)
        return replace(answer, at=self.at) if isinstance(answer, Evidence) else answer


class FakeStep:
    """One use of a step whose delay is ten seconds times the attempt."""

    def __init__(self, *names: str, arguments: bytes = b"{}", retries: int = 0, branch: Branch | None = None) -> None:
        self.names, self.arguments, self.retries = names, arguments, retries
        self.branch = branch or Branch("")

    def delay_seconds(self, attempt: int) -> float:
        return 10.0 * attempt


class FakeEffect:
    """One use of an effect, with an identity of its own."""

    def __init__(self, contract: Contract = KEYED, *, can_ask: bool = True, compensates: str = "") -> None:
        self.names, self.arguments, self.branch = ("open_ticket",), b'{"who":"acme"}', Branch("")
        self.contract, self.identity, self.can_ask, self.compensates = contract, "ticket:acme", can_ask, compensates
        self.scope: tuple[tuple[str, str], ...] = ()
        self.needs_approval: bool | str = False
        self.timeout_seconds, self.budget_seconds = 8.0, 300.0

    def register_undo(self, session: Any, settled: Any) -> None:
        raise AssertionError("the core registers no undo")


def make_state(*drafts: Draft, run_id: str = "r", inline_bytes: int = INLINE_BYTES) -> RunState:
    """Run `r` under fence token 3 in the hands of owner 1, with these entries recorded."""
    return RunState(
        run_id,
        3,
        make_journal("r", *drafts),
        owner=1,
        namespace="n",
        stamps=STAMPS,
        working={},
        find_call=lambda *_: None,
        inline_bytes=inline_bytes,
    )
