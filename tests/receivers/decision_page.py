"""The decision table as a page: `python -m tests.receivers.decision_page` performs it and writes it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from surefoot import receivers
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.twins import Sort

from .decision_stage import AGENT, perform_all
from .decision_table import (
    BOTH_LIVE,
    CELLS,
    MEANS,
    POINTS,
    ROWS,
    STORE_LOST,
    TELLING,
    Cell,
    Column,
    Row,
    is_parked,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "decision-table.md"


def kills(cells: Iterable[Cell]) -> int:
    """How many processes are killed for these cells."""
    return sum(cell.point not in (STORE_LOST, BOTH_LIVE) for cell in cells)


def shown(row: Row, column: Column) -> str:
    """One field of the table: what is done, and how many of its points a person has to decide."""
    cells = [cell for cell in CELLS if cell.row is row and cell.column is column]
    ways = list(dict.fromkeys(str(cell.way) for cell in cells if cell.point is not BOTH_LIVE))
    parked = sum(is_parked(cell) for cell in cells)
    told = f" ({parked} of {len(cells)} parked)" if 0 < parked < len(cells) else ""
    return " / ".join(ways) + told if cells else ""


def table() -> str:
    """The table in Markdown."""
    columns = [column for column in Column if column is not Column.NOT_SENT]
    head = ["class", "receiver", *columns]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for row in sorted(ROWS, key=lambda row: list(Sort).index(Sort(receivers.get(row.receiver).class_))):
        fields = [receivers.get(row.receiver).class_, f"`{row.receiver}`", *(shown(row, column) for column in columns)]
        lines.append(" | ".join(fields))
    return "\n".join(f"| {line} |" for line in lines)


def document() -> str:
    """The whole of `docs/decision-table.md`."""
    parked = sum(is_parked(cell) for cell in CELLS)
    ways = "\n".join(f"- **{way}**: {means}." for way, means in MEANS.items())
    points = "\n".join(f"- **{column}**: {'; '.join(point.name for point in POINTS[column])}." for column in Column)
    telling = "; ".join(point.name for point in TELLING)
    whys = "\n".join(f"- `{row.receiver}`: {row.why}." for row in ROWS if row.why)
    return f"""{HEAD}
{len(CELLS)} cells of {len(ROWS)} receivers, {kills(CELLS)} processes killed with SIGKILL: **0 duplicates, 0 lost**. In
{parked} cells a person has to decide, each is named here; decided by the receiver's books, they end with one act, too.
What surely was not sent is sent, once, in every row. Another payload under the same identity is never sent: both sides
are shown, and the field says what becomes of the first one / what happens to the second one if our store was lost.

{table()}

## What is done

{ways}

## How an effect gets there

{points}

Of a second receiver of a class only those points are performed in which it can differ from the first: {telling}.

## Where a row is not what its class suggests

{whys}
"""


HEAD = """# The decision table

What becomes of an effect in doubt, per class of receiver. Each field was performed: an agent was killed for real,
started again, and what the receiver did was counted in the ledger of its [twin](twins.md). "Past it" means that the
whole window has passed, so that a blind repeat would act a second time. `python -m tests.receivers.decision_page`
performs all of it and writes this page.
"""


def main() -> None:
    """Perform every cell, print what went wrong, and write the page if nothing did."""
    began = time.monotonic()
    with ForkServer(AGENT) as server, tempfile.TemporaryDirectory(prefix="surefoot-") as folder:
        done = perform_all(server, Path(folder), CELLS)
    wrong = {id: result for id, result in done.items() if result.problems}
    for id, result in wrong.items():
        print(id, result)
    print(f"{len(done)} cells, {kills(CELLS)} kills, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    if wrong:
        raise SystemExit(1)
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
