"""Rows: what is done to the agent in one world, and where. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .boundary import Arrival
from .config import WINDOWS, Config
from .errors import CrashtestError

KILLING = ("kill", "twice", "deploy")
AT_A_BOUNDARY = ("kill", "twice", "deploy", "lose_reply", "late", "500_after", "pause")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: its kind, the boundary by name, the window, and for replicas how many."""

    kind: str
    boundary: str = ""
    window: str = ""
    copies: int = 1

    @property
    def id(self) -> str:
        """What `--row` takes: `kill:effect:shop POST /charges#1`, `replicas:2`, `clean`."""
        if self.kind == "replicas":
            return f"replicas:{self.copies}"
        return ":".join([self.kind, *filter(None, [self.window, self.boundary])])

    @property
    def kills(self) -> bool:
        """Whether a kill has to be proved."""
        return self.kind in KILLING


CLEAN = Row(kind="clean")


def parse_row(text: str) -> Row:
    """The row of this id."""
    kind, _, rest = text.partition(":")
    if kind == "clean" and not rest:
        return CLEAN
    if kind == "replicas" and rest.isdigit() and int(rest) > 1:
        return Row(kind=kind, copies=int(rest))
    window, _, boundary = rest.partition(":")
    if kind in (*KILLING, "pause") and window in WINDOWS and boundary:
        return Row(kind=kind, window=window, boundary=boundary)
    if kind in ("lose_reply", "late", "500_after") and rest:
        return Row(kind=kind, boundary=rest)
    raise CrashtestError(
        "--row expects KIND:WINDOW:BOUNDARY, such as 'kill:effect:shop POST /charges#1', or 'replicas:2'; found "
        f"{text!r}"
    )


def rows_of(config: Config, arrivals: Sequence[Arrival]) -> list[Row]:
    """Every row that this configuration asks for, over the boundaries of a clean run."""
    chosen = [
        a
        for a in sorted(arrivals, key=lambda a: a.number)
        if (config.only is None or re.search(config.only, a.boundary))
        and (config.skip is None or not re.search(config.skip, a.boundary))
    ]
    rows = [Row(kind="kill", boundary=a.boundary, window=w) for a in chosen for w in config.windows]
    for kind in dict.fromkeys(config.rows):
        match kind:
            case "replicas":
                rows.append(Row(kind="replicas", copies=config.replicas))
            case "deploy":
                rows += [Row(kind=kind, boundary=a.boundary, window=w) for a in chosen for w in config.windows]
            case "twice":
                rows += [Row(kind=kind, boundary=a.boundary, window="effect") for a in chosen]
            case "pause":  # `before` would be a request that is late, from which no lookup can protect
                rows += [Row(kind=kind, boundary=a.boundary, window="effect") for a in chosen if a.acted]
            case "late":
                rows += [Row(kind=kind, boundary=a.boundary) for a in chosen if a.acted]
            case "lose_reply" | "500_after":
                rows += [Row(kind=kind, boundary=a.boundary) for a in chosen]
    return rows
