"""A line is one figure over the rounds, with the mark it should reach."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a figure should reach: at most, or at least."""

    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""

    def reached(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"<= {number(self.at_most)}{self.unit}"
        return f">= {number(self.at_least or 0)}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Line:
    """`values` holds one figure a round. Without values, `why` says why there are none."""

    row: str
    who: str
    what: str
    values: tuple[float, ...] = ()
    unit: str = ""
    mark: Mark | None = None
    why: str = ""
    busy: bool = False
    """True if other work ran beside every one of the values."""

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def verdict(self) -> str:
        if self.mark is None:
            return ""
        if self.median is None:
            return "not measured"
        return ("reached" if self.mark.reached(self.median) else "MISSED") + (" (busy)" if self.busy else "")

    def as_json(self) -> dict[str, Any]:
        record = asdict(self)
        record["mark"] = str(self.mark) if self.mark else None
        spread = {"median": self.median, "min": min(self.values, default=None), "max": max(self.values, default=None)}
        return {**record, **spread, "verdict": self.verdict}


def number(value: float) -> str:
    """Three figures, with thousands set apart."""
    if value == int(value) and abs(value) < 100:
        return str(int(value))
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.3g}"
    return f"{value:.2f}"


def cells(line: Line) -> tuple[str, ...]:
    if line.median is None:
        measured = f"- ({line.why or 'no answer'})"
    elif len(line.values) == 1:
        measured = f"{number(line.median)}{line.unit}"
    else:
        measured = f"{number(line.median)}{line.unit}  [{number(min(line.values))}..{number(max(line.values))}]"
    return line.who, line.what, measured, str(line.mark or ""), line.verdict


def shown(lines: Sequence[Line]) -> list[Line]:
    """An engine that gave no answer says so once a row, and beside each of its marks."""
    kept: list[Line] = []
    silent: set[tuple[str, str]] = set()
    for line in lines:
        if line.values or line.mark or (line.row, line.who) not in silent:
            kept.append(line)
        if not line.values:
            silent.add((line.row, line.who))
    return kept


def render(lines: Sequence[Line]) -> str:
    """One block per row, columns aligned over the whole table."""
    head = ("engine", "figure", "median [min..max]", "mark", "")
    lines = shown(lines)
    body = [cells(line) for line in lines]
    widths = [max(len(cell[column]) for cell in (head, *body)) for column in range(len(head))]
    widths[2] = max(len(cell[2]) for cell in (head, *body) if len(cell[2]) < 48)  # a long reason does not widen it

    def text(cell: tuple[str, ...]) -> str:
        return "  ".join(part.ljust(width) for part, width in zip(cell, widths, strict=True)).rstrip()

    out, row = ["  " + text(head)], ""
    for line, cell in zip(lines, body, strict=True):
        if line.row != row:
            row = line.row
            out += ["", row]
        out.append("  " + text(cell))
    return "\n".join(out)


def tally(lines: Sequence[Line]) -> str:
    verdicts = [line.verdict for line in lines if line.mark]
    words = ("reached", "MISSED", "reached (busy)", "MISSED (busy)", "not measured")
    return ", ".join(f"{verdicts.count(word)} {word}" for word in words if word in verdicts)
