"""A run inside an engine: parked is a value, waiting is the engine's, and a failure says whether to try again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import surefoot
from surefoot.inside import Done, Parked, attempt, attempt_async, is_final
from surefoot.inside.parked import address_of, leave_address, run_id_of
from surefoot.inside.riding import LOOK_SECONDS_MAX, look_seconds
from tests.inside.support import calls, decide, fails, given_back, hears, pays, pays_async, sleeps

ENGINES = ("celery", "dbos", "langgraph", "restate", "script", "temporal")


@pytest.fixture
def sf(tmp_path: Path) -> Iterator[surefoot.Surefoot]:
    calls.clear()
    with surefoot.Surefoot(tmp_path / "a.db") as opened:
        yield opened


def test_a_parked_run_is_a_value_that_holds_the_command(sf: surefoot.Surefoot) -> None:
    parked = attempt(sf, pays, ("7",), {}, "order-7")
    assert isinstance(parked, Parked) and parked.run == "order-7" and parked.until == 0.0
    (doubt,) = parked.doubts
    assert doubt.name == "pay" and doubt.decide.startswith(f"surefoot resolve order-7 {doubt.effect[:12]} ")
    assert Parked.read(json.loads(json.dumps(parked.plain()))) == parked


def test_the_next_attempt_goes_on_after_the_decision_and_sends_nothing(sf: surefoot.Surefoot) -> None:
    assert isinstance(attempt(sf, pays, ("7",), {}, "order-7"), Parked)
    assert isinstance(attempt(sf, pays, ("7",), {}, "order-7"), Parked)
    decide(sf, "order-7", "receipt:1")
    assert attempt(sf, pays, ("7",), {}, "order-7") == Done("receipt:1")
    assert attempt(sf, pays, ("7",), {}, "order-7") == Done("receipt:1")
    assert calls == ["look", "pay 7"]


async def test_async_code_rides_workflows_of_both_kinds(sf: surefoot.Surefoot) -> None:
    for workflow, run in ((pays, "one"), (pays_async, "two")):
        assert isinstance(await attempt_async(sf, workflow, ("7",), {}, run), Parked)
        decide(sf, run, "receipt:1")
        assert await attempt_async(sf, workflow, ("7",), {}, run) == Done("receipt:1")


def test_code_that_cannot_await_is_refused_an_async_workflow(sf: surefoot.Surefoot) -> None:
    with pytest.raises(surefoot.UsageError, match="await ride"):
        attempt(sf, pays_async, ("7",), {}, "order-7")


def test_a_timer_is_waited_for_by_the_engine(sf: surefoot.Surefoot) -> None:
    parked = given_back(sf, sleeps, "rest")
    now = sf.engine.time()
    assert isinstance(parked, Parked) and 3000 < parked.until - now <= 3601
    assert look_seconds(parked, 0, now) == 60.0
    assert look_seconds(parked, 0, parked.until - 5) == 5.0
    assert look_seconds(parked, 0, parked.until + 5) == 0.0


def test_a_message_is_waited_for_by_the_engine(sf: surefoot.Surefoot) -> None:
    assert isinstance(given_back(sf, hears, "ear"), Parked)
    sf.signal("ear", "word", "go")
    assert attempt(sf, hears, (), {}, "ear") == Done("go")


def test_an_engine_looks_less_and_less_often(sf: surefoot.Surefoot) -> None:
    parked = Parked(run="r", reason="")
    assert [look_seconds(parked, looks, 0.0) for looks in (0, 1, 2, 40)] == [60.0, 120.0, 240.0, LOOK_SECONDS_MAX]


def test_what_another_try_would_repeat_is_final(sf: surefoot.Surefoot) -> None:
    with pytest.raises(ValueError, match="no such order") as failed:
        attempt(sf, fails, (), {}, "bad")
    attempt(sf, pays, ("7",), {}, "order-7")
    with pytest.raises(surefoot.RunMismatch) as other:
        attempt(sf, pays, ("8",), {}, "order-7")
    assert is_final(sf, "bad", failed.value) and is_final(sf, "order-7", other.value)
    assert is_final(sf, "x", surefoot.UsageError("no"))
    assert is_final(sf, "x", surefoot.Diverged("x", "changed", (), ""))


def test_what_may_end_otherwise_is_tried_again(sf: surefoot.Surefoot) -> None:
    attempt(sf, pays, ("7",), {}, "order-7")
    for error in (surefoot.CommitUnknown("?"), surefoot.NotCommitted("no"), surefoot.RunBusy("order-7", "process 1")):
        assert not is_final(sf, "order-7", error)
    assert not is_final(sf, "order-7", OSError("the engine's own"))
    assert not is_final(sf, "nowhere", OSError("the engine's own"))


def test_ids_that_are_too_long_stay_apart() -> None:
    assert run_id_of("order-7", "run", "1") == "order-7/run/1"
    one, two = run_id_of("x" * 300, "1"), run_id_of("x" * 300, "2")
    assert one != two and len(one) == len(two) == 200
    assert run_id_of("y" * 200) == "y" * 200


def test_an_address_is_left_once_and_the_last_one_counts(sf: surefoot.Surefoot) -> None:
    attempt(sf, pays, ("7",), {}, "order-7")
    for name in ("a", "a", "b"):
        leave_address(sf, "order-7", "restate", {"awakeable": name})
    run = sf.store.find_run("order-7")
    assert run is not None and run.mail == 2
    assert address_of(sf, run) == {"engine": "restate", "awakeable": "b"}


def test_a_run_that_has_ended_meanwhile_takes_no_address(sf: surefoot.Surefoot) -> None:
    attempt(sf, pays, ("7",), {}, "order-7")
    decide(sf, "order-7", "receipt:1")
    attempt(sf, pays, ("7",), {}, "order-7")
    leave_address(sf, "order-7", "dbos", {"workflow": "w"})
    run = sf.store.find_run("order-7")
    assert run is not None and address_of(sf, run) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_is_not_installed_is_not_imported(engine: str) -> None:
    code = f"""
import sys
class Blocks:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("celery", "dbos", "langgraph", "restate", "temporalio"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocks())
import surefoot.inside.{engine}
"""
    subprocess.run([sys.executable, "-c", code], check=True)
