"""The demo's matrix as rows of the table: one row per policy, thirty kills each, and its control."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from rich.console import Console

from surefoot.demo.count import Result as Counted
from surefoot.demo.count import judge
from surefoot.demo.main import measure as measure_policies
from surefoot.demo.scenario import POLICIES
from targets.bench import Bench
from targets.results import Row, Verdict

KILLS = "30 kills: 10 steps x 3 windows"


def measure(bench: Bench) -> Iterator[Row]:
    """All seven policies; raises if a figure is not what its windows imply, since then nothing is proved."""
    console = Console(stderr=True, quiet=not sys.stderr.isatty())
    jobs = min(4, os.cpu_count() or 1)
    matrix = measure_policies(POLICIES, jobs=jobs, keep=bench.world("matrix"), disarmed=None, console=console)
    for result in matrix.results:
        if complaints := judge(result):
            raise AssertionError("\n".join(complaints))
        yield _row(result)
        yield _control(result)


def _row(result: Counted) -> Row:
    figures, ours = result.figures, result.policy.is_surefoot
    ends: dict[str, int] = {}
    for row in result.rows:
        for status in row.exit_codes:
            ends[str(status)] = ends.get(str(status), 0) + 1
    verdict: Verdict = "twice" if figures.duplicate_kills else "lost" if result.lost else "once"
    if verdict == "once" and result.parked:
        verdict = "told"
    parked = f", {result.parked} parked" if result.parked else ""
    return Row(
        row=KILLS,
        arm=result.policy.title,
        ours=ours,
        seen=f"{figures.duplicate_kills} / {figures.worst_duplicates} / {figures.mean_extra_tokens:,}{parked}",
        verdict=verdict,
        tries=len(result.rows),
        good=sum(not row.cost.duplicates and not row.lost for row in result.rows),
        asked=len(result.rows),
        done=sum(row.exit_codes[0] == -9 for row in result.rows),
        ends=ends,
        counts={
            "kills_with_duplicate": figures.duplicate_kills,
            "worst_duplicates": figures.worst_duplicates,
            "mean_extra_tokens": figures.mean_extra_tokens,
            "worst_extra_tokens": figures.worst_extra_tokens,
            "lost": result.lost,
            "parked": result.parked,
        },
    )


def _control(result: Counted) -> Row:
    ends = {str(status): result.control.exit_codes.count(status) for status in set(result.control.exit_codes)}
    good = not result.control.cost.duplicates and not result.control.lost
    return Row(
        row="control, nobody killed",
        arm=result.policy.title,
        ours=result.policy.is_surefoot,
        seen=f"{result.control.cost.duplicates} / {result.control.cost.extra_tokens}",
        verdict="once" if good else "twice",
        good=int(good),
        fault="none",
        asked=0,
        ends=ends,
    )
