"""R9 for exceptions: the same class, arguments and message live and on replay; nothing is imported by name."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot import Refused, StepFailed, Surefoot, UsageError, step, workflow
from tests.runtime.support import FakeClock, live_and_replayed, live_and_replayed_async, slots


class Mine(Exception):
    """Named in `raises=`."""


class Sub(Mine):
    """Below a named class, not named itself."""


class Awkward(Exception):
    """Cannot be made from its message."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"{code} {hint}")


class Coded(Exception):
    """Keeps its arguments."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


def decode_error() -> Exception:
    try:
        json.loads("{")
    except ValueError as error:
        return error
    raise AssertionError


AS_THEMSELVES: list[Callable[[], Exception]] = [
    lambda: ValueError("bad", 1, None, 2.5, True),
    lambda: KeyError("k"),
    lambda: RuntimeError(),
    lambda: FileNotFoundError(2, "No such file"),
    lambda: TimeoutError("late"),
    lambda: ConnectionResetError(104, "reset"),
    lambda: ZeroDivisionError("division by zero"),
    lambda: AssertionError("ünï 🐎"),
    lambda: Mine("m", 3),
    lambda: Coded(7, "seven"),
    lambda: StopAsyncIteration("s"),
    lambda: NotImplementedError({"a": 1}),
    lambda: UsageError("of ours"),
    lambda: Refused("no", code=422),
]


@pytest.mark.parametrize("make", AS_THEMSELVES, ids=range(len(AS_THEMSELVES)))
def test_builtins_and_named_classes_come_back_as_themselves(db: Path, make: Callable[[], Exception]) -> None:
    ran: list[int] = []

    @step(raises=(Mine, Coded))
    def fail() -> None:
        ran.append(1)
        raise make()

    live, replayed = live_and_replayed(db, fail)
    assert type(live) is type(replayed) is type(make())
    assert live.args == replayed.args and str(live) == str(replayed)
    assert ran == [1]


STEP_FAILED: list[tuple[Callable[[], Exception], str]] = [
    (lambda: Sub("deep"), "Sub: deep"),
    (lambda: Awkward(3, hint="x"), "Awkward: 3 x"),
    (decode_error, "JSONDecodeError: Expecting property name"),
    (lambda: ExceptionGroup("two", [ValueError(1), KeyError(2)]), "ExceptionGroup: two"),
    (lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "UnicodeDecodeError"),
    (lambda: type("Local", (Exception,), {})("gone"), "Local: gone"),
    (lambda: Mine("lone \ud800"), r"Mine: lone \\ud800"),
]


@pytest.mark.parametrize(("make", "text"), STEP_FAILED, ids=range(len(STEP_FAILED)))
def test_other_exceptions_are_step_failed_live_and_on_replay(
    db: Path, make: Callable[[], Exception], text: str
) -> None:
    @step(raises=Awkward)
    def fail() -> None:
        raise make()

    live, replayed = live_and_replayed(db, fail)
    assert type(live) is type(replayed) is StepFailed
    assert str(live) == str(replayed) and live.args == replayed.args
    with pytest.raises(StepFailed, match=text):
        raise live
    assert live.type_name == replayed.type_name and "fail" in live.step


@pytest.mark.parametrize("make", AS_THEMSELVES[:6], ids=range(6))
async def test_async_steps_fail_alike(db: Path, make: Callable[[], Exception]) -> None:
    @step
    async def fail() -> None:
        await asyncio.sleep(0)
        raise make()

    live, replayed = await live_and_replayed_async(db, fail)
    assert type(live) is type(replayed) and live.args == replayed.args and str(live) == str(replayed)


def test_live_the_original_exception_is_the_cause(db: Path) -> None:
    @step
    def fail() -> None:
        raise Sub("deep")

    live, _ = live_and_replayed(db, fail)
    assert isinstance(live.__cause__, Sub)


def test_a_long_message_is_cut_and_is_the_same_both_times(db: Path) -> None:
    @step
    def fail() -> None:
        raise Sub("x" * 100_000)

    live, replayed = live_and_replayed(db, fail)
    assert str(live) == str(replayed) and len(str(live)) < 5000


def test_a_step_is_tried_again_and_only_its_end_is_recorded(db: Path, clock: FakeClock) -> None:
    ran: list[int] = []

    @step(retries=3)
    def flaky() -> str:
        ran.append(1)
        if len(ran) < 3:
            raise ConnectionError("down")
        return "up"

    @workflow
    def flow() -> str:
        return flaky()

    with Surefoot(db, clock=clock) as sf:
        assert sf.run(flow, id="r") == "up"
        read = sf.store.read_run("r")
    assert read is not None and [entry.attempts for entry in read[1]] == [3]
    assert clock.slept == [0.5, 1.0] and len(ran) == 3


async def test_retries_that_are_spent_raise_the_last_failure(db: Path, clock: FakeClock) -> None:
    ran: list[int] = []

    @step(retries=2)
    async def down() -> None:
        ran.append(1)
        raise ConnectionError(f"try {len(ran)}")

    @workflow
    async def flow() -> None:
        await down()

    async with Surefoot(db, clock=clock) as sf:
        for _ in range(2):
            with pytest.raises(ConnectionError, match="try 3"):
                await sf.run(flow, id="r")
    assert len(ran) == 3


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_step_over_its_time_fails_with_timeout_error_both_times(db: Path, kind: str) -> None:
    @step(timeout=0.02)
    async def slow_async() -> None:
        await asyncio.sleep(30)

    @step(timeout=0.02)
    def slow() -> None:
        import threading

        threading.Event().wait(0.3)

    if kind == "def":
        live, replayed = live_and_replayed(db, slow)
    else:
        live, replayed = asyncio.run(live_and_replayed_async(db, slow_async))
    assert type(live) is type(replayed) is TimeoutError and str(live) == str(replayed)


def test_a_step_within_its_time_runs_on_a_thread_of_its_own_with_its_context(db: Path) -> None:
    @step
    def inner() -> int:
        return 1

    @step(timeout=20)
    def outer() -> int:
        return inner() + 1

    @workflow
    def flow() -> int:
        return outer()

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == 2
        assert len(slots(sf, "r")) == 1, "a step inside a step is a plain call, on that thread too"


def test_a_failed_step_that_is_caught_lets_the_run_go_on(db: Path) -> None:
    @step
    def fail() -> None:
        raise ValueError("caught")

    @workflow
    def flow() -> str:
        try:
            fail()
        except ValueError as error:
            return str(error)
        return "never"

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == "caught"


def test_a_workflow_that_fails_with_its_own_class_names_it_in_raises(db: Path) -> None:
    @workflow(raises=Mine)
    def flow() -> None:
        raise Mine("m")

    @workflow
    def other() -> None:
        raise Mine("m")

    with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(Mine, match="m"):
                sf.run(flow, id="r")
            with pytest.raises(StepFailed, match="Mine: m"):
                sf.run(other, id="o")


def test_nothing_in_a_record_makes_python_import_or_call_anything(db: Path) -> None:
    class Popen(Exception):
        pass

    Popen.__qualname__ = "subprocess.Popen"

    @step
    def fail() -> None:
        raise Popen("echo")

    live, replayed = live_and_replayed(db, fail)
    assert type(live) is type(replayed) is StepFailed and replayed.type_name == "subprocess.Popen"
