"""Shows a matrix in a terminal and as JSON; every number shown comes from the counted rows."""

from typing import Any

from rich import box
from rich.table import Table

from surefoot.demo.count import Matrix, Result, Row
from surefoot.demo.scenario import PUBLISHED, TOKENS_CLEAN, TURNS, Figures, step_title


def draw_table(matrix: Matrix) -> Table:
    """Draws one line per policy, 80 columns wide; the caption says which lines equal the published ones."""
    agree = [result.policy.name for result in matrix.results if PUBLISHED.get(result.policy.name) == result.figures]
    table = Table(
        title=f"{matrix.kills} kills, counted from the ledgers",
        caption=f"as published: {', '.join(agree) or 'none of these'}",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 0),
        show_edge=False,
    )
    table.add_column("policy", no_wrap=True)
    for column in (
        "with\nduplicate",
        "at\nworst",
        "lost",
        "parked",
        "extra\ntokens",
        "at\nworst",
        "re-\nstarts",
        "s per\nkill",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for result in matrix.results:
        table.add_row(*_cells(result), style="green" if result.policy.is_surefoot else None)
    return table


def _cells(result: Result) -> list[str]:
    figures = result.figures
    duplicates = f"{figures.duplicate_kills} of {len(result.rows)}"
    return [
        result.policy.title,
        f"[red]{duplicates}[/red]" if figures.duplicate_kills else duplicates,
        str(figures.worst_duplicates),
        f"[red]{result.lost}[/red]" if result.lost else "0",
        str(result.parked),
        f"{figures.mean_extra_tokens:,}",
        f"{figures.worst_extra_tokens:,}",
        str(result.restarts),
        f"{result.mean_seconds:.2f}",
    ]


def encode_matrix(matrix: Matrix) -> dict[str, Any]:
    """The table and every row under it, as plain JSON values."""
    return {
        "kills": matrix.kills,
        "seconds": round(matrix.seconds, 2),
        "jobs": matrix.jobs,
        "tokens_clean": TOKENS_CLEAN,
        "turns": [
            {"number": turn.number, "tool": turn.tool, "writes": turn.writes, "tokens": turn.tokens} for turn in TURNS
        ],
        "policies": [_encode_result(result) for result in matrix.results],
        "complaints": matrix.complaints,
    }


def _encode_result(result: Result) -> dict[str, Any]:
    published = PUBLISHED.get(result.policy.name)
    return {
        "name": result.policy.name,
        "title": result.policy.title,
        "offer": result.policy.offer,
        **_encode_figures(result.figures),
        "lost": result.lost,
        "parked": result.parked,
        "restarts": result.restarts,
        "mean_seconds": round(result.mean_seconds, 3),
        "published": None if published is None else _encode_figures(published),
        "rows": [_encode_row(row) for row in (result.control, *result.rows)],
    }


def _encode_figures(figures: Figures) -> dict[str, int]:
    return {
        "duplicate_kills": figures.duplicate_kills,
        "worst_duplicates": figures.worst_duplicates,
        "mean_extra_tokens": figures.mean_extra_tokens,
        "worst_extra_tokens": figures.worst_extra_tokens,
    }


def _encode_row(row: Row) -> dict[str, Any]:
    kill = (
        None
        if row.kill is None
        else {"step": row.kill.step, "at": step_title(row.kill.step), "window": row.kill.window}
    )
    return {
        "kill": kill,
        "performed": row.performed,
        "duplicates": row.cost.duplicates,
        "lost": row.lost,
        "repeated_under_key": row.repeated,
        "tokens": row.tokens,
        "extra_tokens": row.cost.extra_tokens,
        "parked": row.parked,
        "restarts": row.restarts,
        "exit_codes": list(row.exit_codes),
        "seconds": round(row.seconds, 3),
        "faults": list(row.faults),
    }
