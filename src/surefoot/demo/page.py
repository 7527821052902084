"""Writes the HTML page: one self-contained file that asks the network for nothing.

This module only turns counted rows into what the template draws; it computes shares and shades, never a count.
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from surefoot.demo.count import Matrix, Result, Row
from surefoot.demo.scenario import PUBLISHED, STEPS, TOKENS_CLEAN, TURNS, Window, step_title


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: its label, its value as text, and its length as a share of the longest."""

    label: str
    text: str
    share: float
    is_surefoot: bool


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One kill in a policy's grid: a shade, a short text in it, and the whole sentence for who asks."""

    shade: str
    text: str
    sentence: str


def write_page(path: Path, matrix: Matrix) -> None:
    """Renders the matrix into one HTML file at this path."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = files("surefoot.demo").joinpath("page.html.j2").read_text(encoding="utf-8")
    html = environment.from_string(source).render(
        matrix=matrix,
        ours=[result for result in matrix.results if result.policy.is_surefoot],
        theirs=[result for result in matrix.results if not result.policy.is_surefoot],
        duplicates=_bars(matrix, lambda result: result.figures.duplicate_kills, unit=" of 30"),
        tokens=_bars(matrix, lambda result: result.figures.mean_extra_tokens, unit=""),
        grids={result.policy.name: _grid(result) for result in matrix.results},
        published=PUBLISHED,
        turns=TURNS,
        tokens_clean=TOKENS_CLEAN,
        windows=list(Window),
        steps=[(step, step_title(step), TURNS[(step - 1) // 2].writes and step % 2 == 0) for step in STEPS],
        python=platform.python_version(),
        system=platform.system(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")


def _bars(matrix: Matrix, measure: Callable[[Result], int], *, unit: str) -> list[Bar]:
    longest = max((measure(result) for result in matrix.results), default=0) or 1
    return [
        Bar(
            label=result.policy.title,
            text=f"{measure(result):,}{unit}",
            share=measure(result) / longest,
            is_surefoot=result.policy.is_surefoot,
        )
        for result in matrix.results
    ]


def _grid(result: Result) -> list[tuple[Window, Sequence[Cell]]]:
    by_kill = {(row.kill.step, row.kill.window): row for row in result.rows if row.kill is not None}
    return [(window, [_cell(by_kill[step, window]) for step in STEPS]) for window in Window]


def _cell(row: Row) -> Cell:
    assert row.kill is not None
    duplicates, extra = row.cost.duplicates, row.cost.extra_tokens
    place = f"killed at {step_title(row.kill.step)}, {row.kill.window}"
    tokens = f"{extra:,} extra tokens" if extra else "no extra tokens"
    if row.lost or row.faults:
        return Cell(shade="fault", text="!", sentence=f"{place}: {row.lost} lost, {'; '.join(row.faults)}")
    if duplicates:
        return Cell(
            shade=f"dup{min(duplicates, 3)}",
            text=f"{duplicates}×",
            sentence=f"{place}: {duplicates} duplicates, {tokens}",
        )
    if row.parked:
        return Cell(shade="parked", text="ask", sentence=f"{place}: parked, a person resolved it, {tokens}")
    if extra:
        return Cell(shade=f"cost{_shade(extra)}", text=_short(extra), sentence=f"{place}: no duplicate, {tokens}")
    return Cell(shade="clean", text="·", sentence=f"{place}: no duplicate, {tokens}")


def _shade(extra_tokens: int) -> int:
    return 1 if extra_tokens <= 10_400 else 2 if extra_tokens <= 20_000 else 3


def _short(tokens: int) -> str:
    return f"{tokens / 1000:.1f}k".replace(".0k", "k")
