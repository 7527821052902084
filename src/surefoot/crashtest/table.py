"""The table for a terminal: one line for each boundary, one column for each window; other rows below."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .judge import Verdict, crossed
from .matrix import Result
from .words import headline, worst

MARKS = (
    ("fault", "fault", "bold magenta"),
    ("duplicates", "twice", "bold red"),
    ("wrong", "wrong", "bold red"),
    ("lost", "lost", "bold red"),
    ("stranded", "stranded", "bold red"),
    ("wrong_answer", "answer", "bold red"),
    ("gave_up", "gave up", "bold red"),
    ("asks", "asks", "cyan"),
    ("unreached", "not reached", "cyan"),
)


def mark(verdict: Verdict) -> tuple[str, str]:
    """(word, style) for one row: its gravest verdict, or what it cost."""
    for name, word, style in MARKS:
        if getattr(verdict, name):
            return word, style
    if verdict.extra_model_calls:
        return f"+{verdict.extra_model_calls}", "yellow"
    return "once", "green"


def draw(result: Result) -> RenderableType:
    """The whole result."""
    windows = list(dict.fromkeys(v.row.window for v in result.verdicts if v.row.kind == "kill"))
    parts: list[RenderableType] = []
    if windows:
        parts.append(_grid(result, windows))
    others = [v for v in result.verdicts if v.row.kind != "kill"]
    if others:
        parts.append(_others(others))
    parts.append(Text(legend(result), style="dim"))
    parts += [Text(f"note: {text}", style="yellow") for text in result.warnings]
    bad = bool(result.failing or result.faults) or len(result.unreached) == len(result.verdicts)
    parts.append(Text("\n" + headline(result), style="bold red" if bad else "bold green"))
    shown = worst(result)
    if shown is not None and not result.faults:
        parts.append(Text("\n".join(f"    {line}" for line in shown.request.splitlines()[:8])))
    for name, (found, allowed) in crossed(result.verdicts, result.config.threshold).items():
        parts.append(Text(f"{name}: {found:g}, and {allowed:g} allowed", style="red"))
    return Group(*parts)


def legend(result: Result) -> str:
    """What the words in the cells mean, as far as they occur, and what it took."""
    kills = sum(v.kills for v in result.verdicts)
    paid = "+n = model calls paid again, " if any(v.extra_model_calls for v in result.verdicts) else ""
    if result.unreached:
        paid += "not reached = it had ended before its kill came, so nothing was tested there, "
    return (
        f"{paid}{len(result.verdicts)} rows, {kills} kills proved by exit signal, {result.seconds:.1f} s, "
        f"{result.jobs} worlds at once"
    )


def _grid(result: Result, windows: list[str]) -> Table:
    table = Table(title=result.title, box=box.SIMPLE_HEAD, title_justify="left", show_edge=False, padding=(0, 1))
    table.add_column("killed at", no_wrap=True, overflow="ellipsis", ratio=1)
    for window in windows:
        table.add_column(window, justify="right", no_wrap=True)
    table.add_column("recovers", justify="right", no_wrap=True)
    found = {(v.row.boundary, v.row.window): v for v in result.verdicts if v.row.kind == "kill"}
    for boundary in dict.fromkeys(v.row.boundary for v in result.verdicts if v.row.kind == "kill"):
        mine = [found[boundary, window] for window in windows if (boundary, window) in found]
        cells = [Text(*mark(found[boundary, w])) if (boundary, w) in found else Text("") for w in windows]
        slowest = max(v.recover_seconds for v in mine)
        table.add_row(boundary, *cells, f"{slowest:.1f} s")
    return table


def _others(verdicts: list[Verdict]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    table.add_column("row", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("recovers", justify="right", no_wrap=True)
    for verdict in verdicts:
        table.add_row(
            verdict.row.id, Text(*mark(verdict)), f"{verdict.recover_seconds:.1f} s" if verdict.recover_seconds else ""
        )
    return table
