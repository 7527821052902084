"""The rows of the HTTP layer: what the journal adds to a call of a model, and how it grows with a conversation."""

from collections.abc import Callable
from dataclasses import replace

from bench.launch import Answer, Bench, Contestant, ours
from bench.rows import Figures
from bench.table import Line, Mark

CLIENT = "httpx2 with the journal"


def contestant() -> Contestant:
    return replace(ours("def"), name=CLIENT, worker="models.py")


def asked(bench: Bench, row: str, work: str, full: int, small: int) -> Figures:
    who, count = contestant(), str(bench.count(full, small))
    rounds = bench.rounds if bench.keep([who]) else 0
    answers: list[Answer] = [bench.ask(who, work, "--n", count, limit=120) for _ in range(rounds)]
    return Figures(row=row, by_name={CLIENT: answers})


def lines(figures: Figures, *wanted: tuple[str, str, str, Mark | None]) -> list[Line]:
    return [
        figures.line(CLIENT, what, figures.values(CLIENT, key), unit=unit, mark=mark)
        for what, key, unit, mark in wanted
    ]


def call(bench: Bench) -> list[Line]:
    figures = asked(bench, "H1. a call of a model that does not stream, beside the client alone", "call", 300, 20)
    return lines(
        figures,
        ("p50 added, less one raw commit", "over_ms", " ms", Mark(at_most=0.5, unit=" ms")),
        ("CPU added, commit included", "cpu_ms", " ms", None),
        ("p50 added", "added_ms", " ms", None),
        ("p50 of the client alone", "plain_ms", " ms", None),
        ("raw commit p50", "commit_ms", " ms", None),
    )


def stream(bench: Bench) -> list[Line]:
    figures = asked(bench, "H2. the first event of a stream, beside the client alone", "stream", 300, 20)
    return lines(
        figures,
        ("p50 added", "added_ms", " ms", Mark(at_most=1.0, unit=" ms")),
        ("p50 of the client alone", "plain_ms", " ms", None),
    )


def growth(bench: Bench) -> list[Line]:
    figures = asked(bench, "H3. the journal of one conversation of 200 turns", "grow", 200, 20)
    return lines(
        figures,
        ("bytes at the last turn over bytes at half", "ratio", "", Mark(at_most=2.2)),
        ("bytes at half", "half_bytes", " B", None),
        ("bytes at the last turn", "full_bytes", " B", None),
    )


def replay(bench: Bench) -> list[Line]:
    figures = asked(bench, "H4. 200 recorded calls, read again", "replay", 200, 20)
    return lines(
        figures,
        ("all of them", "replay_ms", " ms", Mark(at_most=100, unit=" ms")),
        ("CPU of all of them", "cpu_ms", " ms", None),
        ("of one conversation, each turn with all of it", "talk_ms", " ms", None),
        ("as they were made", "live_ms", " ms", None),
    )


ROWS: dict[str, Callable[[Bench], list[Line]]] = {"H1": call, "H2": stream, "H3": growth, "H4": replay}
