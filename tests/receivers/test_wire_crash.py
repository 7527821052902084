"""Eight services through their own client packages: killed between the act and its record, and answers lost.

Every count is taken from the twin's ledger. A killed agent is proved dead by its exit status, the moment by the ledger
(it acted) and the agent's store (nothing but the attempt is recorded).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from surefoot.core.effect import Effect, Status
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.twins import Twin, wire
from tests.receivers.wire_agent import Job

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
        # lookups are asked on a clock that jumps, so a lag is only waited for where the agent has to wait for it
        self.twin = Twin(replace(module.BEHAVIOUR, lag_seconds=0.0), folder / "ledger.jsonl", wire=module.Wire())
        self.server, self.folder, self.service = server, folder, service

    def start(self, function: str = "live", **told: Any) -> Child:
        clock = str(self.twin.clock.path)
        job = Job(service=self.service, about="A-7", url=self.twin.url, db=str(self.folder / "agent.db"), clock=clock)
        return self.server.start(function, msgspec.to_builtins(msgspec.structs.replace(job, **told)))

    def end(self, child: Child) -> str:
        """What a life that ends by itself says."""
        assert child.join() == 0, child.lines
        return child.lines[-1]

    def kill_after_the_act(self, function: str = "live", *, acts: int = 1) -> None:
        """The twin acts and keeps its answer; then the agent is killed."""
        self.twin.next("lost_answer")
        child = self.start(function)
        self.twin.wait_for("performed", acts)
        assert child.kill() == -9, child.lines
        assert not [line for line in child.lines if line.startswith("receipt")]

    def record(self) -> Effect:
        store = SqliteStore(str(self.folder / "agent.db"))
        try:
            return store.find_effects(list(Status))[0]
        finally:
            store.close()


@pytest.fixture
def case(server: ForkServer, request: pytest.FixtureRequest) -> Iterator[Case]:
    """In memory where there is such a folder: the death of a process says nothing about the disk."""
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="surefoot-") as folder:
        held = Case(server, Path(folder), request.param)
        with held.twin:
            yield held


every_service = pytest.mark.parametrize("case", SERVICES, indirect=True)


def receipt_of(case: Case) -> str:
    """The receipt that the twin's only act has earned, as the agent reads it."""
    number = case.twin.acts()[0].number
    shapes = {"stripe": f"re_{number:024x}", "zendesk": str(35_000 + number), "github": str(number)}
    shapes |= {"sendgrid": f"mail{number:018d}", "twilio": f"SM{number:032x}"}
    return f"receipt {shapes.get(case.service, '')}"


@every_service
def test_killed_between_act_and_record_it_acts_once_and_adopts_the_receipt(case: Case) -> None:
    case.kill_after_the_act()
    assert case.record().status is Status.ATTEMPTED
    said = case.end(case.start())
    assert said.startswith(receipt_of(case)) and len(case.twin.acts()) == 1
    assert case.record().status is Status.CONFIRMED


@every_service
@pytest.mark.parametrize("fault", ["reset", "error_after"])
def test_an_answer_lost_in_a_living_process_is_found_again(case: Case, fault: str) -> None:
    case.twin.next(fault)
    said = case.end(case.start())
    assert said.startswith(receipt_of(case)) and len(case.twin.acts()) == 1


@every_service
def test_a_plain_agent_that_is_killed_there_acts_twice(case: Case) -> None:
    case.kill_after_the_act("plain")
    case.end(case.start("plain"))
    assert len(case.twin.acts()) == 2


@every_service
def test_a_day_later_the_key_is_not_relied_on_any_more(case: Case) -> None:
    case.kill_after_the_act()
    case.twin.advance(25 * HOUR)
    if case.service == "pagerduty":
        case.twin.finish(case.record().sent_key)  # resolved meanwhile: its key would page people again
    arrived = len(case.twin.lines("arrived"))
    said = case.end(case.start())
    assert said.startswith(receipt_of(case)) and len(case.twin.acts()) == 1
    repeats = len(case.twin.lines("arrived")) - arrived
    assert repeats == (1 if case.service == "s3" else 0)  # its name protects as long as the object exists


PARKED_WHEN_NOTHING_IS_SHOWN = ("stripe", "github", "slack", "sendgrid", "pagerduty", "twilio")


@every_service
def test_a_request_that_never_arrived_is_sent_again_or_shown_to_a_person(case: Case) -> None:
    case.twin.next("lost_request")
    child = case.start()
    case.twin.wait_for("arrived")
    assert child.kill() == -9
    case.twin.advance(25 * HOUR)
    said = case.end(case.start())
    parks = case.service in PARKED_WHEN_NOTHING_IS_SHOWN
    assert said.startswith("parked" if parks else "receipt"), said
    assert len(case.twin.acts()) == (0 if parks else 1)


@every_service
def test_two_processes_that_want_the_same_act_once(case: Case) -> None:
    case.twin.next("hold")
    first = case.start(run="r1", jumps=False)
    case.twin.wait_for("arrived")
    second = case.start(run="r2", jumps=False)
    assert second.read(30, until="ready")
    case.twin.release()
    said = {case.end(first), case.end(second)}
    assert len(said) == 1 and said.pop().startswith("receipt") and len(case.twin.acts()) == 1


@every_service
def test_a_client_with_its_own_retries_sends_one_request_for_an_attempt(case: Case) -> None:
    case.twin.next("reset")
    said = case.end(case.start(careless=True))
    assert said.startswith(receipt_of(case)) and len(case.twin.acts()) == 1
    assert len(case.twin.lines("arrived")) == case.record().attempts


@pytest.mark.parametrize("case", ["slack"], indirect=True)
def test_a_client_with_its_own_retries_posts_twice_when_nobody_watches(case: Case) -> None:
    case.twin.next("reset", "reset")
    assert case.end(case.start("plain", careless=True)).startswith("raised")
    assert len(case.twin.acts()) == 2
