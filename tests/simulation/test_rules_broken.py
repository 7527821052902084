"""Rules that need no second worker, broken on purpose: each check passes on the real code and fails on the mutation.

The table in `test_model_check` names them beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from surefoot.core import flows, perform
from surefoot.core.commands import Commit, Execute, Look, Record, RenewLease, Result, SendEffect
from surefoot.core.digest import short_digest
from surefoot.core.errors import Diverged, StoreError
from surefoot.core.ids import derive_key
from surefoot.core.journal import Branch, Draft, Entry, EntryKind, Replay, first_head, seal
from surefoot.core.writes import TakeEffect

from .records import SETTINGS, vantage_of
from .workers import Call


class Step:
    """One use of a step without retries."""

    names, retries = ("assess",), 0

    def __init__(self) -> None:
        self.branch, self.arguments = Branch(""), b"{}"

    def delay_seconds(self, attempt: int) -> float:
        return 0.0


def state_with(*drafts: Draft) -> flows.RunState:
    """A run whose journal holds these entries."""
    entries: list[Entry] = []
    head = first_head("run-a")
    for draft in drafts:
        entry, head = seal(head, draft)
        entries.append(entry)
    return flows.RunState(
        "run-a",
        1,
        entries,
        owner=1,
        namespace="default",
        stamps=count(1),
        working={},
        find_call=lambda effect, request: None,
    )


def recorded_step() -> Draft:
    return Draft(EntryKind.STEP, "assess", short_digest(b"{}"), "", b'"done"', 1.0)


def commands_of(flow: Any, record: Callable[[], None] = lambda: None) -> list[object]:
    """What a flow asks for, up to its first commit or its end; `record` is called at each record."""
    asked: list[object] = []
    given: object = None
    error: StoreError | None = None
    while True:
        try:
            command = flow.throw(error) if error else flow.send(given)
        except (StopIteration, StoreError):
            return asked
        error = None
        asked.append(command)
        match command:
            case Execute():
                given = Result(True, b'"live"', "live")
            case Look():
                given = vantage_of(1)
            case Record():
                given = None
                try:
                    record()
                except StoreError as failed:
                    error = failed
            case RenewLease():
                given = None
            case Commit() | SendEffect():
                return asked
            case _:
                raise AssertionError(command)


def recorded_once() -> None:
    """R1: a step whose record is durable is not executed again."""
    asked = commands_of(flows.step(state_with(recorded_step()), Step()))
    assert not [c for c in asked if isinstance(c, Execute)], "a recorded step ran again"


def barrier() -> None:
    """R2: while a recorded entry of the branch is unread, no intent is made and nothing is sent."""
    try:
        asked = commands_of(perform.perform(state_with(recorded_step()), Call(SETTINGS["opaque"], 0)))
    except Diverged:
        return
    raise AssertionError(f"an effect was begun behind an unread entry: {asked[-1]}")


def identity() -> None:
    """R3: the arguments never decide the identity, so a model that words it otherwise makes no second effect."""
    keys = set[str]()
    for variant in (0, 1):
        commit = commands_of(perform.perform(state_with(), Call(SETTINGS["opaque"], variant)))[-1]
        assert isinstance(commit, Commit) and isinstance(commit.write, TakeEffect)
        keys.add(commit.write.effect.key)
    assert len(keys) == 1, "two wordings of one action have two keys"


def recording() -> None:
    """R10: an error while recording does not run the body again."""

    def fail() -> None:
        raise StoreError("the disk is full")

    asked = commands_of(flows.step(state_with(), Step()), fail)
    assert len([c for c in asked if isinstance(c, Execute)]) == 1, "an error while recording ran the step again"


def forget_entries(patch: pytest.MonkeyPatch) -> None:
    real = Replay.take

    def take(self: Replay, *asked: Any) -> tuple[str, None]:
        return real(self, *asked)[0], None

    patch.setattr(Replay, "take", take)


def forget_the_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Replay, "may_send", lambda self, branch, asked, *, undoes=False: None)


def key_from_arguments(patch: pytest.MonkeyPatch) -> None:
    real = perform.perform

    def changed(state: flows.RunState, call: Any) -> Any:
        patch.setattr(perform, "derive_key", lambda space, name: derive_key(space, name + call.arguments.decode()))
        return real(state, call)

    patch.setattr(perform, "perform", changed)


def act_again_when_recording_fails(patch: pytest.MonkeyPatch) -> None:
    real = flows.step

    def step(state: flows.RunState, call: Any) -> Any:
        try:
            return (yield from real(state, call))
        except StoreError:
            return (yield from real(state, call))

    patch.setattr(flows, "step", step)


RULES = (
    (recorded_once, forget_entries),
    (barrier, forget_the_barrier),
    (identity, key_from_arguments),
    (recording, act_again_when_recording_fails),
)


@pytest.mark.parametrize(("rule", "mutation"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_a_rule_holds_and_its_mutation_is_caught(
    rule: Callable[[], None], mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule()
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        rule()
