"""The harness itself: a kill that did not happen is a fault, and counts come from the receivers' records."""

import signal
from pathlib import Path

import pytest

from surefoot.demo.count import Life, Line, count_row, judge_row
from surefoot.demo.harness import open_bench, run_row
from surefoot.demo.scenario import BY_NAME, TURNS, WRITE_KINDS, Kill, Window

KILLED = Life(exit_code=-signal.SIGKILL)
DONE = Life(exit_code=0)
KILL = Kill(step=4, window=Window.EFFECT)
WORLD = [Line(event="performed", kind=kind) for kind in WRITE_KINDS]
MODEL = [Line(event="served", tokens=turn.tokens) for turn in TURNS]
PROOF = Line(event="killed", number=2, window=Window.EFFECT)


def faults(kill: Kill | None, world: list[Line], lives: list[Life]) -> str:
    row = count_row(BY_NAME["keys"], kill, world=world, model=MODEL, lives=lives, parked=0, seconds=0.1)
    return "; ".join(row.faults)


def test_a_proved_kill_is_no_fault() -> None:
    assert faults(KILL, [*WORLD, PROOF], [KILLED, DONE]) == ""
    assert faults(Kill(step=4, window=Window.RECORDED), WORLD, [KILLED, DONE]) == ""
    assert faults(None, WORLD, [DONE]) == ""


@pytest.mark.parametrize(
    ("kill", "world", "lives", "complaint"),
    [
        (KILL, WORLD, [DONE], "was to die by SIGKILL"),
        (KILL, [*WORLD, PROOF], [DONE], "was to die by SIGKILL"),
        (KILL, [*WORLD, PROOF], [], "no life at all"),
        (KILL, WORLD, [KILLED, DONE], "kills on record"),
        (KILL, [*WORLD, PROOF, PROOF], [KILLED, DONE], "kills on record"),
        (Kill(step=4, window=Window.BEFORE), [*WORLD, PROOF], [KILLED, DONE], "kills on record"),
        (Kill(step=6, window=Window.EFFECT), [*WORLD, PROOF], [KILLED, DONE], "kills on record"),
        (KILL, [*WORLD, PROOF], [KILLED, KILLED, DONE], "nobody killed ended with -9"),
        (KILL, [*WORLD, PROOF], [KILLED, Life(exit_code=1, last_words="boom"), DONE], "boom"),
        (KILL, [*WORLD, PROOF], [KILLED, Life(exit_code=1, last_words="boom")], "never finished"),
        (None, [*WORLD, PROOF], [DONE], "kills on record"),
    ],
)
def test_a_row_that_proves_nothing_is_a_fault(
    kill: Kill | None, world: list[Line], lives: list[Life], complaint: str
) -> None:
    assert complaint in faults(kill, world, lives)


def test_duplicates_losses_and_tokens_are_counted_from_the_records() -> None:
    world = [*WORLD, WORLD[0], WORLD[0], Line(event="repeated", kind="pages"), PROOF]
    world.remove(WORLD[2])
    row = count_row(
        BY_NAME["keys"], KILL, world=world, model=[*MODEL, MODEL[0]], lives=[KILLED, DONE], parked=0, seconds=0.1
    )
    assert (row.cost.duplicates, row.lost, row.cost.extra_tokens, row.restarts, row.repeated) == (2, 1, 4_400, 1, 1)
    complaints = "; ".join(judge_row(row))
    assert "lost ['status']" in complaints
    assert "the window implies" in complaints


@pytest.mark.parametrize("window", Window)
def test_a_row_whose_kill_is_left_out_is_a_fault(window: Window, tmp_path: Path) -> None:
    kill = Kill(step=4, window=window)
    with open_bench(tmp_path) as bench:
        disarmed = run_row(bench, BY_NAME["keys"], kill, disarmed=True)
    assert "was to die by SIGKILL" in "; ".join(disarmed.faults)
    assert disarmed.exit_codes == (0,)


@pytest.mark.parametrize("window", Window)
def test_a_row_whose_kill_lands_counts_what_the_window_implies(window: Window, tmp_path: Path) -> None:
    with open_bench(tmp_path) as bench:
        row = run_row(bench, BY_NAME["journal"], Kill(step=4, window=window))
    assert row.exit_codes == (-signal.SIGKILL, 0)
    assert (row.faults, list(judge_row(row))) == ((), [])
    assert row.performed == {"tickets": 1 + (window is Window.EFFECT), "pages": 1, "status": 1}
