"""Breadth-first search: every state once, the shortest way to a broken rule, and what nobody can leave any more."""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from .moves import Moves
from .protocol import State

FAULTS = frozenset({"crash", "takeover", "unsure, applied", "unsure, not applied"})
"""What no way to an end may need: when faults stop, everything that was begun comes to an end by itself."""


@dataclass
class Found:
    """What a search came to. `broken` is "" when every state keeps every rule; else `way` leads to where one breaks."""

    states: int
    moves: int
    seconds: float
    broken: str = ""
    way: list[tuple[Any, ...]] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)


def explore(graph: Moves, states_max: int = 2_000_000) -> Found:
    """Visit every state; stops at the first broken rule. Raises AssertionError when there are too many states."""
    collecting = gc.isenabled()
    gc.disable()  # millions of small tuples and no cycle: looking for one doubles the time
    try:
        return _explore(graph, states_max)
    finally:
        if collecting:
            gc.enable()


def _explore(graph: Moves, states_max: int) -> Found:
    began = perf_counter()
    start = graph.start()
    number: dict[State, int] = {start: 0}
    states, parents, labels = [start], array("l", [-1]), [()]
    heads, tails = array("l"), array("l")
    at = moves = 0
    while at < len(states):
        state = states[at]
        for label, after, broken in graph.moves(state):
            if not broken and after == state:
                continue
            seen = number.get(after)
            if seen is None or broken:
                broken = broken or graph.breaks(after)
                if broken:
                    way = [*way_to(at, parents, labels), label]
                    return Found(len(states), moves, perf_counter() - began, broken, way)
                seen = number[after] = len(states)
                states.append(after)
                parents.append(at)
                labels.append(label)
            moves += 1
            if label[0] not in FAULTS:
                heads.append(at)
                tails.append(seen)
        at += 1
        assert len(states) <= states_max, f"more than {states_max:,} states"
    resting = [graph.at_rest(state) for state in states]
    stuck = first_stuck(resting, heads, tails)
    found = Found(len(states), moves, perf_counter() - began)
    found.ends = Counter(
        graph.effects[s.effect].status.value for s, rests in zip(states, resting, strict=True) if rests
    )
    if stuck is not None:
        found.broken, found.way = "I4: from here no end can be reached any more", way_to(stuck, parents, labels)
    return found


def way_to(at: int, parents: array[int], labels: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The shortest way from the start."""
    way: list[tuple[Any, ...]] = []
    while at > 0:
        way.append(labels[at])
        at = parents[at]
    return way[::-1]


def first_stuck(resting: list[bool], heads: array[int], tails: array[int]) -> int | None:
    """The first state from which no resting state can be reached."""
    before: list[list[int]] = [[] for _ in resting]
    for head, tail in zip(heads, tails, strict=True):
        before[tail].append(head)
    good = list(resting)
    todo = [i for i, rests in enumerate(resting) if rests]
    while todo:
        for earlier in before[todo.pop()]:
            if not good[earlier]:
                good[earlier] = True
                todo.append(earlier)
    return next((i for i, fine in enumerate(good) if not fine), None)
