"""``make demo``: runs the matrix with a progress bar, prints one table, and writes one page.

Exit codes: 0 when every figure is what it must be, 1 when a figure differs or a kill is not proved (each
difference is printed), 2 for options that make no sense.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from surefoot.demo.count import Matrix, Row, gather
from surefoot.demo.harness import open_bench, run_rows
from surefoot.demo.page import write_page
from surefoot.demo.report import draw_table, encode_matrix
from surefoot.demo.scenario import BY_NAME, KILLS, POLICIES, Kill, Policy, parse_kill

app = typer.Typer(add_completion=False, help="Kill one agent 30 times under each of seven policies, and count.")


@app.command()
def main(
    out: Annotated[Path, typer.Option(help="Where the HTML page goes.")] = Path("demo-report.html"),
    json_to: Annotated[str | None, typer.Option("--json", help="Write every row as JSON to this file, or - .")] = None,
    policies: Annotated[str, typer.Option(help=f"Comma-separated: {', '.join(BY_NAME)}.")] = ",".join(BY_NAME),
    jobs: Annotated[int, typer.Option(min=1, max=32, help="Agents running at once.")] = 4,
    keep: Annotated[Path | None, typer.Option(help="Keep each row's ledger, journal and output here.")] = None,
    disarm: Annotated[
        str | None,
        typer.Option(metavar="STEP:WINDOW", help="Leave this kill out; the run must then fail (negative control)."),
    ] = None,
) -> None:
    """Kills one agent 30 times under each policy, restarts it, and counts what the world saw."""
    console = Console(stderr=json_to == "-")
    chosen, disarmed = _choose_policies(policies), _choose_kill(disarm)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise typer.BadParameter(f"expected an empty directory, {keep} has files in it", param_hint="--keep")
    matrix = measure(chosen, jobs=jobs, keep=keep, disarmed=disarmed, console=console)
    write_page(out, matrix)
    console.print(draw_table(matrix))
    if json_to is not None:
        text = json.dumps(encode_matrix(matrix), indent=1)
        print(text) if json_to == "-" else Path(json_to).write_text(text + "\n")
    console.print(f"page: {escape(str(out.resolve()))}", soft_wrap=True)
    for complaint in matrix.complaints:
        console.print(f"[red]differs[/red] {escape(complaint)}", soft_wrap=True)
    if matrix.complaints:
        raise typer.Exit(1)


def measure(
    policies: Sequence[Policy], *, jobs: int, keep: Path | None, disarmed: Kill | None, console: Console
) -> Matrix:
    """Runs the rows of these policies in a directory of their own, and counts them."""
    directory = Path(tempfile.mkdtemp(prefix="surefoot-demo-")) if keep is None else keep.resolve()
    started = time.monotonic()
    rows: list[Row] = []
    try:
        with open_bench(directory) as bench, _progress(console) as progress:
            bars = _add_bars(progress, policies)
            for row in run_rows(bench, policies, jobs=jobs, disarmed=disarmed):
                rows.append(row)
                _advance(progress, bars[row.policy.name], [each for each in rows if each.policy == row.policy])
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    return gather(policies, rows, seconds=time.monotonic() - started, jobs=jobs)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<20}"),
        BarColumn(bar_width=31),
        MofNCompleteColumn(),
        TextColumn("{task.fields[duplicates]:>3} duplicates"),
        TimeElapsedColumn(),
        console=console,
    )


def _add_bars(progress: Progress, policies: Sequence[Policy]) -> dict[str, TaskID]:
    rows = len(KILLS) + 1
    return {policy.name: progress.add_task(policy.title, total=rows, duplicates=0) for policy in policies}


def _advance(progress: Progress, bar: TaskID, rows: Sequence[Row]) -> None:
    progress.update(bar, completed=len(rows), duplicates=sum(row.cost.duplicates for row in rows))


def _choose_policies(names: str) -> list[Policy]:
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    strange = [name for name in wanted if name not in BY_NAME]
    if strange or not wanted:
        raise typer.BadParameter(f"expected some of {', '.join(BY_NAME)}; got {names!r}", param_hint="--policies")
    return [policy for policy in POLICIES if policy.name in wanted]


def _choose_kill(text: str | None) -> Kill | None:
    try:
        return None if text is None else parse_kill(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--disarm") from error
