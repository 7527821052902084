"""Which runs a worker may take, in what order, and what is told of those that nobody takes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.core.dispatch import Limits, Queue, Ready, Served, choose, spent, unserved
from surefoot.core.dispatch_writes import free
from surefoot.core.run import Run, RunStatus

ME = 7


def row(n: int, *, queue: str = "q", key: str = "", priority: int = 0, owner: int = 0, version: str = "") -> Ready:
    return Ready(
        run_id=f"r{n:03}",
        queue=queue,
        workflow="w",
        version=version,
        key=key,
        priority=priority,
        since=float(n),
        owner=owner,
    )


ROWS = st.lists(
    st.builds(
        lambda queue, key, priority: (queue, key, priority),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["", "x", "y", "z"]),
        st.integers(0, 2),
    ),
    max_size=30,
)
LIMITS = st.builds(
    Limits,
    concurrency=st.integers(0, 6),
    per_worker=st.integers(0, 4),
    per_key=st.integers(0, 3),
    rate=st.integers(0, 5),
)


@settings(max_examples=100, deadline=None)
@given(waiting=ROWS, busy=ROWS, limits=LIMITS, slots=st.integers(1, 12))
def test_what_is_chosen_keeps_every_limit_and_nothing_more_would_fit(
    waiting: list[tuple[str, str, int]], busy: list[tuple[str, str, int]], limits: Limits, slots: int
) -> None:
    ready = [row(n, queue=q, key=k, priority=p) for n, (q, k, p) in enumerate(waiting)]
    taken = [row(500 + n, queue=q, key=k, owner=ME + n % 2) for n, (q, k, _) in enumerate(busy)]
    queues = {"a": Queue(name="a", limits=limits)}
    chosen = choose(ready, taken, queues, owner=ME, slots=slots, now=0.0)
    assert len(chosen) <= slots and len({r.run_id for r in chosen}) == len(chosen)
    priorities = [r.priority for r in chosen if r.queue == "b"]
    assert priorities == sorted(priorities, reverse=True)

    def fits(more: list[Ready]) -> bool:
        """The limits of queue a, counted anew; only where this claim has added something to what was there."""
        added = [r for r in more if r.queue == "a"]
        every = [r for r in taken if r.queue == "a"] + added
        keys = Counter(r.key for r in every if r.key)
        mine = sum(r.owner == ME for r in taken if r.queue == "a") + len(added)
        return not added or (
            (not limits.concurrency or len(every) <= limits.concurrency)
            and (not limits.per_worker or mine <= limits.per_worker)
            and (not limits.per_key or all(keys[r.key] <= limits.per_key for r in added if r.key))
            and (not limits.rate or len(added) <= limits.rate)
        )

    assert fits(chosen)
    if len(chosen) < slots:
        assert not [r for r in ready if r not in chosen and fits([*chosen, r])], "something was left that would fit"


def test_keys_take_turns_by_what_they_have_under_way() -> None:
    ready = [*(row(n, key="busy") for n in range(10)), row(50, key="quiet"), row(51, key="quiet")]
    keys = [r.key for r in choose(ready, [], {}, owner=ME, slots=5, now=0.0)]
    assert keys == ["busy", "quiet", "busy", "quiet", "busy"]
    taken = [row(90, key="busy", owner=3), row(91, key="busy", owner=3)]
    assert [r.key for r in choose(ready, taken, {}, owner=ME, slots=2, now=0.0)] == ["quiet", "quiet"]


def test_of_equals_it_is_the_turn_of_the_key_that_had_none_for_longest() -> None:
    ready = [row(1, key="a"), row(2, key="b"), row(3, key="c")]
    turns = {("q", "a"): 9, ("q", "b"): 8}
    assert [r.key for r in choose(ready, [], {}, owner=ME, slots=3, now=0.0, turns=turns)] == ["c", "b", "a"]


def test_priority_goes_before_turns_and_age_decides_within_a_key() -> None:
    ready = [row(3, key="a"), row(1, key="a"), row(2, key="b", priority=1), row(4, key="b", priority=1)]
    assert [r.run_id for r in choose(ready, [], {}, owner=ME, slots=4, now=0.0)] == ["r002", "r004", "r001", "r003"]


def test_a_full_key_does_not_stop_the_others_of_its_queue() -> None:
    queues = {"q": Queue(name="q", limits=Limits(per_key=1))}
    ready = [row(1, key="a"), row(2, key="a"), row(3, key="b"), row(4), row(5)]
    assert [r.run_id for r in choose(ready, [], queues, owner=ME, slots=9, now=0.0)] == ["r001", "r003", "r004", "r005"]


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.floats(0, 40), st.integers(1, 9)), max_size=60), rate=st.integers(1, 12))
def test_a_rate_is_kept_in_every_span_and_allows_all_that_it_may(steps: list[tuple[float, int]], rate: int) -> None:
    period, now = 60.0, 1000.0
    queue = Queue(name="q", limits=Limits(rate=rate, period_seconds=period))
    begun: list[float] = []
    for pause, wanted in steps:
        now += pause
        allowed = int(queue.starts(now))
        recent = sum(at > now - period for at in begun)
        coarse = sum(at > now - period - period / 64 for at in begun)
        assert rate - coarse <= allowed <= rate - recent
        took = min(wanted, allowed)
        if took:
            queue = spent(queue, took, now)
            begun += [now] * took
        assert len(queue.recent) <= 66


def test_what_no_worker_serves_is_told_with_the_reason() -> None:
    mine = Served(queues=("q",), workflows=(("w", "2"),))
    assert unserved(row(1, version="2"), [mine]) == ""
    assert unserved(row(1), []) == "no live worker serves queue 'q'"
    assert unserved(row(1, queue="p"), [mine]) == "no live worker serves queue 'p'"
    assert unserved(row(1, version="1"), [mine]) == (
        "the live workers of queue 'q' have workflow 'w' in version '2', not '1'"
    )
    assert "has workflow 'w'" in unserved(row(1), [Served(queues=("q",), workflows=(("v", ""),))])


def running() -> Run:
    return Run(
        id="r",
        workflow="w",
        status=RunStatus.RUNNING,
        arguments=b"{}",
        args_digest=b"",
        fence=1,
        owner=1,
        created_at=0.0,
        updated_at=0.0,
    )


def test_deaths_count_only_while_the_journal_does_not_grow() -> None:
    run, seen = running(), []
    for length in (0, 0, 1, 2, 2, 2):
        run = free(run, 1.0, "process 1 on h", length=length, deaths_max=3)
        seen.append((run.status, run.deaths))
        run = run if run.status is RunStatus.QUARANTINED else _taken(run)
    assert [deaths for _, deaths in seen] == [1, 2, 1, 1, 2, 3]
    assert [status for status, _ in seen] == [RunStatus.PENDING] * 5 + [RunStatus.QUARANTINED]
    assert "3 processes died in a row" in run.reason and "where it ran alone" in run.reason
    assert "surefoot retry r" in run.reason


@pytest.mark.parametrize(
    ("beside", "deaths"),
    [([0, 0, 0], 3), ([7, 7, 0], 3), ([7, 7, 1, 0], 4), ([1, 1, 1, 1, 1], 5)],
    ids=["alone", "alone at last", "alone later", "never alone"],
)
def test_a_death_that_may_be_anothers_fault_is_not_the_last(beside: list[int], deaths: int) -> None:
    run = running()
    for number, others in enumerate(beside, start=1):
        run = free(run, 1.0, "process 1 on h", length=4, deaths_max=3, beside=others)
        assert (run.status is RunStatus.QUARANTINED) == (number == deaths), f"after death {number}"
        run = run if run.status is RunStatus.QUARANTINED else _taken(run)
    assert run.deaths == deaths and (f"beside {beside[-1]} other runs" in run.reason) == bool(beside[-1])


def _taken(run: Run) -> Run:
    from surefoot.core.run import RunDo, apply_run

    return apply_run(run, RunDo.CLAIM, 2.0, owner=1)
