"""Eight services through their own client packages: killed between the act and its record, and answers lost.

Every count is taken from the twin's ledger. A killed agent is proved dead by its exit status, the moment by the ledger
(it acted) and the agent's store (nothing but the attempt is recorded).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from surefoot.core.effect import Effect, Status
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.twins import Twin, wire

AGENT = "tests.receivers.wire_agent"
SERVICES = ("stripe", "zendesk", "github", "slack", "sendgrid", "pagerduty", "twilio", "s3")
HOUR = 3600.0

pytestmark = pytest.mark.xdist_group("wire")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(AGENT) as running:
        yield running


class Case:
    """One twin, one store, and lives of an agent against them."""

    def __init__(self, server: ForkServer, folder: Path, service: str) -> None:
        module = getattr(wire, service)
        self.twin = Twin(module.BEHAVIOUR, folder / "ledger.jsonl", wire=module.Wire())
        self.server, self.folder, self.service = server, folder, service

    def start(self, function: str = "live", **told: Any) -> Child:
        clock, db = str(self.twin.clock.path), str(self.folder / "agent.db")
        return self.server.start(
            function, {"service": self.service, "url": self.twin.url, "db": db, "clock": clock, **told}
        )

    def end(self, child: Child) -> list[str]:
        """What a life says that ends by itself."""
        assert child.join() == 0, child.lines
        return [line for line in child.lines if line != "ready"]

    def kill_when(self, what: str, function: str = "live", *, fault: str, count: int = 1) -> None:
        """A request meets this fault; when the ledger says that it did, the agent is killed in the middle of it."""
        self.twin.next(fault)
        child = self.start(function)
        self.twin.wait_for(what, count)
        assert child.kill() == -9, child.lines
        assert child.lines in ([], ["ready"])

    def effects(self) -> list[Effect]:
        store = SqliteStore(str(self.folder / "agent.db"))
        try:
            return store.find_effects()
        finally:
            store.close()

    def receipts(self) -> list[str]:
        """What the agent has to say, as the acts in the ledger have it."""
        shapes: dict[str, Callable[[int], str]] = {
            "stripe": lambda number: f"re_{number:024x}",
            "zendesk": lambda number: str(35_000 + number),
            "github": str,
            "slack": lambda number: f"{int(self.twin.acts()[number - 1].at)}.{number:06d}",
            "sendgrid": lambda number: f"mail{number:018d}",
            "pagerduty": lambda number: self.twin.acts()[number - 1].key,
            "twilio": lambda number: f"SM{number:032x}",
            "s3": lambda number: f'"{hashlib.md5(b"report", usedforsecurity=False).hexdigest()}"',
        }
        return [f"receipt {shapes[self.service](act.number)}" for act in self.twin.acts()]


@contextmanager
def new_case(server: ForkServer, service: str) -> Iterator[Case]:
    """In memory where there is such a folder: the death of a process says nothing about the disk."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="surefoot-") as folder:
        held = Case(server, Path(folder), service)
        with held.twin:
            yield held


@pytest.fixture
def case(server: ForkServer, request: pytest.FixtureRequest) -> Iterator[Case]:
    with new_case(server, request.param) as held:
        yield held


every_service = pytest.mark.parametrize("case", SERVICES, indirect=True)


@every_service
def test_killed_between_act_and_record_it_acts_once_and_adopts_the_receipt(case: Case) -> None:
    case.kill_when("performed", fault="lost_answer")
    assert [effect.status for effect in case.effects()] == [Status.ATTEMPTED]
    assert case.end(case.start()) == case.receipts() and len(case.twin.acts()) == 1
    assert [effect.status for effect in case.effects()] == [Status.CONFIRMED]


@every_service
def test_answers_lost_in_a_living_process_are_found_again_and_each_attempt_is_one_request(case: Case) -> None:
    resent = ["none"] if case.service in ("stripe", "zendesk", "s3") else []  # the others ask
    case.twin.next("reset", *resent, "error_after")
    assert case.end(case.start(abouts=("A-7", "A-8"))) == case.receipts() and len(case.twin.acts()) == 2
    assert len(case.twin.lines("arrived")) == sum(effect.attempts for effect in case.effects())


def test_answers_that_never_come_are_found_again(server: ForkServer) -> None:
    with ExitStack() as stack:
        cases = [stack.enter_context(new_case(server, service)) for service in SERVICES]
        for case in cases:
            case.twin.next("lost_answer")
        lives = [case.start(timeout=3.0) for case in cases]
        for case, life in zip(cases, lives, strict=True):
            assert case.end(life) == case.receipts() and len(case.twin.acts()) == 1
            assert len(case.twin.lines("arrived")) == case.effects()[0].attempts


@every_service
def test_an_answer_that_nobody_can_read_says_nothing(case: Case) -> None:
    case.twin.next("unreadable")
    assert case.end(case.start()) == case.receipts() and len(case.twin.acts()) == 1
    assert [found.found for found in case.effects()[0].evidence if found.kind == "answer"] == ["unknown"]


@every_service
def test_a_refusal_in_the_services_own_words_is_one(case: Case) -> None:
    case.twin.next("refused")
    assert case.end(case.start())[0].startswith("refused") and not case.twin.acts()
    assert case.effects()[0].attempts == 1


@pytest.mark.parametrize("case", ["stripe", "zendesk", "github", "slack", "sendgrid", "twilio", "s3"], indirect=True)
def test_a_rate_limit_is_waited_out(case: Case) -> None:
    case.twin.next("limited", "limited")
    assert case.end(case.start()) == case.receipts() and len(case.twin.acts()) == 1
    assert case.effects()[0].attempts == 3 and not case.twin.lines("looked_up")


@every_service
def test_a_client_with_its_own_retries_is_stopped_before_its_second_request(case: Case) -> None:
    case.twin.next("reset")
    assert case.end(case.start(careless=True)) == case.receipts() and len(case.twin.acts()) == 1
    assert len(case.twin.lines("arrived")) == sum(effect.attempts for effect in case.effects())


@every_service
def test_a_plain_agent_that_is_killed_there_acts_twice(case: Case) -> None:
    case.kill_when("performed", "plain", fault="lost_answer")
    case.end(case.start("plain"))
    assert len(case.twin.acts()) == 2


@pytest.mark.parametrize("case", ["slack"], indirect=True)
def test_a_client_with_its_own_retries_posts_twice_when_nobody_watches(case: Case) -> None:
    case.twin.next("reset")
    case.end(case.start("plain", careless=True))
    assert len(case.twin.acts()) == 2


@every_service
def test_a_day_later_the_key_is_not_relied_on_any_more(case: Case) -> None:
    case.kill_when("performed", fault="lost_answer")
    case.twin.advance(25 * HOUR)
    if case.service == "pagerduty":
        case.twin.finish(case.effects()[0].sent_key)  # resolved meanwhile: now its key would page people again
    assert case.end(case.start()) == case.receipts() and len(case.twin.acts()) == 1
    repeats = len(case.twin.lines("arrived")) - 1
    assert repeats == (1 if case.service == "s3" else 0)  # the name protects as long as the object exists


@every_service
def test_a_request_that_never_arrived_is_sent_again_only_where_absence_is_proved(case: Case) -> None:
    case.kill_when("arrived", fault="lost_request")
    case.twin.advance(25 * HOUR)
    said = case.end(case.start())
    proved = case.service in ("zendesk", "s3")
    assert said[0].startswith("receipt" if proved else "parked") and len(case.twin.acts()) == proved, said


@every_service
def test_two_processes_that_want_the_same_act_once(case: Case) -> None:
    case.twin.next("hold")
    first = case.start(run="r1", jumps=False)
    case.twin.wait_for("arrived")
    second = case.start(run="r2", jumps=False)
    assert second.read(30, until="ready")
    case.twin.release()
    assert case.end(first) == case.end(second) == case.receipts() and len(case.twin.acts()) == 1


@pytest.mark.parametrize("case", ["stripe", "zendesk", "s3"], indirect=True)
def test_a_first_request_that_still_runs_is_waited_for(case: Case) -> None:
    case.kill_when("arrived", fault="hold")
    child = case.start(jumps=False)
    case.twin.wait_for("refused")  # "still running", in the service's own words
    case.twin.release()
    assert case.end(child) == case.receipts() and len(case.twin.acts()) == 1
