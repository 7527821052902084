"""Writes the table of docs/inside.md from engines/results/*.json, between its two marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engines.matrix import ARMS, ENGINES, PLAN, ROWS
from targets.results import Result, Row, read

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "inside.md"
BEGIN, END = "<!-- begin: made by python -m engines page -->", "<!-- end -->"


def results() -> Iterator[Result]:
    """The committed results, in the order of the engines."""
    for name in ENGINES:
        path = HERE / "results" / f"{name}.json"
        if path.exists():
            yield read(path)


def cell(row: Row | None) -> str:
    if row is None:
        return "-"
    told = ", parked, then resolved" if row.ours else ", stopped for review"
    mark = {"once": "", "told": told}.get(row.verdict, f", **{row.verdict}**")
    return f"{row.seen}{mark}; {row.good} of {row.tries}"


def table(results: list[Result]) -> str:
    """One line per arm and row, one block per engine."""
    lines: list[str] = []
    for result in results:
        by = {(row.arm, row.row): row for row in result.rows}
        lines += [f"### {result.note}", ""]
        lines += ["| | reserve/charge/confirm in the shop's ledger, model calls; good of tries |", "|---|---|"]
        for arm, row in PLAN:
            if (ARMS[arm], ROWS[row]) in by:
                lines.append(f"| {ARMS[arm]}: {ROWS[row]} | {cell(by[ARMS[arm], ROWS[row]])} |")
        used = ", ".join(f"{name} {version}" for name, version in result.versions.items())
        lines += ["", f"{result.date}, `{result.command}`, {result.machine}; {used}.", ""]
    return "\n".join(lines)


def write_page() -> None:
    """Put the table into the page; nothing else of it is touched."""
    if not PAGE.exists():
        return
    text = PAGE.read_text("utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(list(results()))}\n{END}{tail}", "utf-8")
