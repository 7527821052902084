"""Code that changed under a journal: what still fits runs on, what does not diverges before any effect leaves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import Attempt, Diverged, Surefoot, effect, keyed, step, workflow
from tests.runtime.support import Crash, Ledger, restart, rows, slots

LEDGER = Ledger()
KEYED = keyed(window=3600)


@step(name="read")
def read(n: int = 0) -> str:
    return f"read {n}"


@step(name="think")
def think(text: str) -> str:
    return f"thought {text}"


@step(name="extra")
def extra() -> str:
    return "extra"


@effect(KEYED, name="mail")
def mail(attempt: Attempt, text: str) -> str:
    return LEDGER.post(attempt.key, f"mail {text}")


@effect(KEYED, name="page")
def page(attempt: Attempt, who: str) -> str:
    return LEDGER.post(attempt.key, f"page {who}")


@pytest.fixture(autouse=True)
def _an_empty_ledger() -> None:
    LEDGER.requests.clear()
    LEDGER.done.clear()


def run(db: Path, body: Callable[[], Any]) -> Any:
    """Run `body` as the workflow "agent" in a new process."""
    restart()
    flow = workflow(name="agent")(lambda: body())
    with Surefoot(db) as sf:
        return sf.run(flow, id="r")


def recorded(db: Path, body: Callable[[], Any]) -> None:
    """The old code runs `body` and dies behind it."""

    def old() -> None:
        body()
        raise Crash

    with pytest.raises(Crash):
        run(db, old)


def two_steps() -> None:
    think(read(1))


def test_an_inserted_step_runs_live_and_the_rest_is_replayed(db: Path) -> None:
    recorded(db, two_steps)

    def new() -> list[str]:
        return [extra(), read(1), extra(), think("read 1"), mail("m")]

    assert run(db, new) == ["extra", "read 1", "extra", "thought read 1", "mail m"]
    assert LEDGER.things == ["mail m"]


def removed() -> None:
    read(1)
    mail("m")


def renamed() -> None:
    step(name="ponder")(lambda text: text)(read(1))
    mail("m")


def reargued() -> None:
    think(read(2))
    mail("m")


def reargued_later() -> None:
    read(1)
    think("something else")
    mail("m")


def effect_first() -> None:
    read(1)
    mail("m")
    think("read 1")


def step_became_effect() -> None:
    read(1)
    effect(KEYED, name="think")(lambda attempt, text: LEDGER.post(attempt.key, text))("read 1")
    mail("m")


def step_became_choice() -> None:
    read(1)
    surefoot.patched("think")
    mail("m")


def into_a_branch() -> None:
    surefoot.gather(lambda: think(read(1)), lambda: mail("m"))
    mail("n")


CHANGES = [
    removed,
    renamed,
    reargued,
    reargued_later,
    effect_first,
    step_became_effect,
    step_became_choice,
    into_a_branch,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_a_change_that_does_not_fit_diverges_before_any_effect_leaves(db: Path, change: Callable[[], None]) -> None:
    recorded(db, two_steps)
    with pytest.raises(Diverged) as caught:
        run(db, change)
    told = str(caught.value)
    assert "run 'r' diverged" in told and "recorded:" in told and "the code asks for:" in told
    assert f"{__file__}:" in told, "file and line of the place in the code"
    assert "formerly=" in told and "patched(" in told
    if change is not into_a_branch:
        assert LEDGER.requests == []
    with Surefoot(db) as sf:
        view = sf.get("r")
    assert view.status == "diverged" and view.reason == told


@pytest.mark.parametrize("change", [c for c in CHANGES if c not in (renamed, into_a_branch)], ids=lambda c: c.__name__)
def test_a_diverged_attempt_leaves_the_journal_as_it_was_and_repaired_code_resumes(
    db: Path, change: Callable[[], None]
) -> None:
    recorded(db, two_steps)
    before = rows(db)
    for _ in range(2):
        with pytest.raises(Diverged):
            run(db, change)
    after = rows(db)
    assert (after["entries"], after["effects"], after["blobs"]) == (before["entries"], [], [])

    def repaired() -> str:
        return mail(think(read(1)))

    assert run(db, repaired) == "mail thought read 1"


def test_both_sides_and_the_line_are_shown(db: Path) -> None:
    recorded(db, two_steps)
    with pytest.raises(Diverged) as caught:
        run(db, reargued)
    told = str(caught.value)
    assert 'recorded: step read("n":1)  [entry 0]' in told
    assert 'asks for: step read("n":2)' in told
    line = reargued.__code__.co_firstlineno + 1
    assert f"test_changed_code.py:{line})" in told


def test_the_workflow_cannot_swallow_a_divergence(db: Path) -> None:
    recorded(db, two_steps)

    def stubborn() -> str:
        read(1)
        for _ in range(3):
            try:
                mail("m")
            except:  # noqa: E722
                continue
        return "swallowed"

    with pytest.raises(Diverged):
        run(db, stubborn)
    assert LEDGER.requests == []


def test_a_renamed_step_reads_its_old_record(db: Path) -> None:
    recorded(db, lambda: [think("a"), think("b"), think("c")])
    ponder = step(name="ponder", formerly="think")(lambda text: f"pondered {text}")
    assert run(db, lambda: [ponder("a"), ponder("b"), ponder("c"), ponder("d"), mail("m")]) == [
        "thought a",
        "thought b",
        "thought c",
        "pondered d",
        "mail m",
    ]


def test_several_former_names_are_tried_in_order(db: Path) -> None:
    recorded(db, lambda: think("a"))
    muse = step(name="muse", formerly=("ponder", "think"))(lambda text: f"mused {text}")
    assert run(db, lambda: [muse("a"), mail("m")]) == ["thought a", "mail m"]


def test_a_renamed_effect_with_formerly_is_not_sent_again(db: Path) -> None:
    recorded(db, lambda: mail("m"))
    letter = effect(KEYED, name="letter", formerly="mail")(lambda attempt, text: LEDGER.post(attempt.key, "again"))
    assert run(db, lambda: letter("m")) == "mail m"
    assert LEDGER.things == ["mail m"] and len(LEDGER.requests) == 1


def test_a_renamed_effect_with_formerly_settles_what_its_old_name_left_open(db: Path) -> None:
    dying = effect(KEYED, name="mail")(lambda attempt, text: die(attempt, text))
    with pytest.raises(Crash):
        run(db, lambda: dying("m"))
    letter = effect(KEYED, name="letter", formerly="mail")(lambda attempt, text: LEDGER.post(attempt.key, "again"))
    assert run(db, lambda: letter("m")) == "mail m"
    assert LEDGER.things == ["mail m"] and len(set(LEDGER.requests)) == 1


def die(attempt: Attempt, text: str) -> str:
    LEDGER.post(attempt.key, f"mail {text}")
    raise Crash


def test_a_renamed_effect_without_formerly_diverges_and_is_not_sent_again(db: Path) -> None:
    recorded(db, lambda: mail("m"))
    letter = effect(KEYED, name="letter")(lambda attempt, text: LEDGER.post(attempt.key, text))
    with pytest.raises(Diverged, match=r"mail\("):
        run(db, lambda: letter("m"))
    assert LEDGER.things == ["mail m"]


def test_a_renamed_effect_with_a_business_identity_is_not_sent_again_either(db: Path) -> None:
    one = effect(KEYED, name="charge", identity="order:{order}")(lambda attempt, order: LEDGER.post(attempt.key, order))
    recorded(db, lambda: one(7))
    two = effect(KEYED, name="bill", identity="order:{order}")(lambda attempt, order: LEDGER.post(attempt.key, order))
    with pytest.raises((Diverged, surefoot.Disagreement)):
        run(db, lambda: two(7))
    assert len(LEDGER.requests) == 1


def test_a_recorded_step_that_nobody_asks_for_any_more_is_named_when_the_run_ends(db: Path) -> None:
    recorded(db, two_steps)
    assert run(db, lambda: read(1)) == "read 1"
    with Surefoot(db) as sf:
        view = sf.get("r")
    assert view.status == "succeeded"
    assert "no longer asked for" in view.reason and "think" in view.reason


def test_a_recorded_effect_that_nobody_asks_for_any_more_is_named_when_the_run_ends(
    db: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded(db, lambda: [read(1), mail("m")])
    assert run(db, lambda: read(1)) == "read 1"
    with Surefoot(db) as sf:
        assert "effect mail" in sf.get("r").reason
        (record,) = sf.store.find_effects()
    assert record.status == "confirmed"
    assert "effect mail" in caplog.text


def test_an_open_effect_that_nobody_asks_for_any_more_is_parked(db: Path) -> None:
    with pytest.raises(Crash):
        run(db, lambda: [read(1), effect(KEYED, name="mail")(die)("m")])
    assert run(db, lambda: read(1)) == "read 1"
    with Surefoot(db) as sf:
        (record,) = sf.store.find_effects()
        assert record.status == "parked" and "no longer asks for it" in record.reason
        assert "effect mail" in sf.get("r").reason


def test_a_removed_branch_diverges_before_the_next_effect(db: Path) -> None:
    recorded(db, lambda: surefoot.gather(lambda: read(1), lambda: read(2)))
    with pytest.raises(Diverged, match=r"0/read"):
        run(db, lambda: mail("m"))
    assert LEDGER.requests == []


def test_a_branch_more_or_less_side_by_side_runs_live_or_diverges(db: Path) -> None:
    recorded(db, lambda: surefoot.map(read, [1, 2]))
    with pytest.raises(Diverged, match=r"1/read"):
        run(db, lambda: [surefoot.map(read, [1]), mail("m")])
    assert run(db, lambda: [*surefoot.map(read, [1, 2, 3]), mail("m")]) == ["read 1", "read 2", "read 3", "mail m"]


# --- patched ----------------------------------------------------------------------------------------------------------


def patched_body() -> str:
    got = read(1)
    if surefoot.patched("think twice"):
        got = think(got)
    return mail(think(got))


def test_patched_is_false_for_runs_that_passed_it_under_the_old_code(db: Path) -> None:
    recorded(db, two_steps)
    assert run(db, patched_body) == "mail thought read 1"


def test_patched_is_true_for_runs_that_reach_it_first(db: Path) -> None:
    recorded(db, lambda: read(1))
    assert run(db, patched_body) == "mail thought thought read 1"


def test_patched_says_the_same_on_every_replay(db: Path) -> None:
    seen: list[bool] = []

    def body() -> None:
        read(1)
        seen.append(surefoot.patched("p"))
        think("x")
        if len(seen) < 4:
            raise Crash

    for _ in range(3):
        with pytest.raises(Crash):
            run(db, body)
    run(db, body)
    assert seen == [True] * 4


def test_patched_says_the_same_on_every_replay_of_an_old_run(db: Path) -> None:
    seen: list[bool] = []

    def body() -> None:
        read(1)
        seen.append(surefoot.patched("p"))
        think("read 1")
        if len(seen) < 3:
            raise Crash

    recorded(db, two_steps)
    for _ in range(2):
        with pytest.raises(Crash):
            run(db, body)
    run(db, body)
    assert seen == [False] * 3


def test_patched_in_a_loop_is_one_decision(db: Path) -> None:
    recorded(db, lambda: [read(0), read(1)])

    def body() -> list[str]:
        out: list[str] = []
        for n in range(3):
            out.append(read(n))
            if surefoot.patched("p"):
                out.append(extra())
        return [*out, mail("m")]

    assert run(db, body) == ["read 0", "read 1", "read 2", "mail m"]


def test_patched_sees_what_the_old_code_recorded_in_branches_behind_it(db: Path) -> None:
    recorded(db, lambda: [read(0), surefoot.gather(lambda: read(1), lambda: read(2))])

    def body() -> list[str]:
        out = [read(0)]
        if surefoot.patched("p"):
            out += surefoot.gather(lambda: think("a"), lambda: think("b"))
        else:
            out += surefoot.gather(lambda: read(1), lambda: read(2))
        return [*out, mail("m")]

    assert run(db, body) == ["read 0", "read 1", "read 2", "mail m"]


async def test_patched_in_branches_does_not_depend_on_who_comes_first(db: Path) -> None:
    import asyncio

    seen: list[list[tuple[int, bool]]] = []
    delays = {0: 0.02, 1: 0.0}

    @step(name="wait")
    async def wait(n: int) -> int:
        await asyncio.sleep(delays[n])
        return n

    @step(name="new")
    async def new(n: int) -> int:
        return n

    async def branch(n: int) -> tuple[int, bool]:
        await wait(n)
        answer = surefoot.patched("p")
        if answer:
            await new(n)
        return n, answer

    restart()

    @workflow(name="agent")
    async def flow() -> None:
        seen.append(list(await asyncio.gather(branch(0), branch(1))))
        if len(seen) == 1:
            raise Crash

    async with Surefoot(db) as sf:
        with pytest.raises(Crash):
            await sf.run(flow, id="r")
        await sf.run(flow, id="r")
        assert len(set(slots(sf, "r"))) == len(slots(sf, "r"))
    assert seen[0] == seen[1] == [(0, True), (1, True)]


def test_old_code_may_finish_a_run_that_newer_code_diverged_on(db: Path) -> None:
    """The message offers it: run the old code until this run ends. So the attempt must have left nothing in its way."""
    recorded(db, two_steps)
    with pytest.raises(Diverged):
        run(db, lambda: [extra(), read(1), mail("m")])
    assert run(db, lambda: mail(think(read(1)))) == "mail thought read 1"
