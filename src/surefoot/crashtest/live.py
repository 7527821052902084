"""Progress while it runs, for people; on a terminal it moves, elsewhere it is silent until the end."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .boundary import Arrival
from .judge import Verdict
from .matrix import Progress as Told


@contextlib.contextmanager
def watched(console: Console, title: str) -> Generator[Told]:
    """What to tell, while this is open."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[found]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    counted = {"kills": 0, "failing": 0}
    with bars:
        bar = bars.add_task(f"{title}: clean runs", total=None, found="")

        def cleaned(arrivals: Sequence[Arrival], rows: int) -> None:
            bars.update(bar, description=f"{title}: {len(arrivals)} boundaries", total=rows, completed=0)

        def judged(verdict: Verdict) -> None:
            counted["kills"] += verdict.kills
            counted["failing"] += verdict.fails or bool(verdict.fault)
            found = f"{counted['kills']} kills, {counted['failing']} failing"
            bars.update(bar, advance=1, found=found)

        yield Told(cleaned=cleaned, judged=judged)
