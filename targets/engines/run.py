"""The gap under each engine, read from what `make test-engines` has measured: a line per engine, a column per arm."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from engines.matrix import ROWS
from engines.page import results
from targets.bench import Bench
from targets.results import Row


def measure(bench: Bench) -> Iterator[Row]:
    """The rows of the committed results, each with its own proof."""
    for result in results():
        for row in result.rows:
            if row.row == ROWS["gap"]:
                yield msgspec.structs.replace(row, row=f"{result.note}: killed in the gap")
