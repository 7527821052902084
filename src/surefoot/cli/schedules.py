"""`surefoot schedules`: what the clock starts and when; pause, resume and remove. No user's code is needed for it."""

from __future__ import annotations

from typing import Annotated

import typer

from ..runtime.schedules import ScheduleView, list_schedules
from .desk import Desk
from .draw import DIM
from .exits import Exit, Failed
from .order import Db, Json, give, order_of
from .page import Page
from .shapes import ScheduleRow, Schedules
from .text import moment, shell


def add_commands(app: typer.Typer) -> None:
    """Give the program this command."""
    app.command()(schedules)


def schedules(
    context: typer.Context,
    pause: Annotated[str | None, typer.Option("--pause", metavar="NAME", help="Let it start nothing.")] = None,
    resume: Annotated[str | None, typer.Option("--resume", metavar="NAME", help="Let it go on from now.")] = None,
    remove: Annotated[str | None, typer.Option("--remove", metavar="NAME", help="Take it away; its runs stay.")] = None,
    upcoming: Annotated[int, typer.Option("--next", metavar="N", min=1, max=100, help="So many occurrences.")] = 3,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """List schedules: their next occurrences and their last run; or pause, resume or remove one.

    A schedule starts runs while any worker of the store is there. What fell into a pause is not made up for.
    """
    order = order_of(context, db, as_json)
    asked = [name for name in (pause, resume, remove) if name is not None]
    if len(asked) > 1:
        raise Failed(Exit.BAD_INPUT, "expected one of --pause, --resume and --remove, found several")
    with Desk(order.db) as desk:
        if asked and asked[0] not in {schedule.name for schedule in desk.store.board.find_schedules()}:
            raise Failed(Exit.NOT_FOUND, f"no schedule {asked[0]!r} in this store; `surefoot schedules` lists them")
        if pause is not None:
            desk.sf.pause_schedule(pause)
        if resume is not None:
            desk.sf.resume_schedule(resume)
        if remove is not None:
            desk.sf.unschedule(remove)
        found = list_schedules(desk.sf.engine, count=upcoming, now=desk.now)
        document = Schedules(schedules=[row_of(view) for view in found])
        give(order, document, lambda page: draw_schedules(page, document))
    return Exit.FINE


def row_of(view: ScheduleView) -> ScheduleRow:
    """A schedule as it is printed."""
    return ScheduleRow(
        name=view.name,
        workflow=view.workflow,
        when=view.when,
        queue=view.queue,
        catch_up=view.catch_up,
        paused=view.paused,
        next=[at.timestamp() for at in view.next],
        last_run=view.last_run,
        last_at=view.last_at.timestamp() if view.last_at else None,
        skipped_from=view.skipped[0].timestamp() if view.skipped else None,
        skipped_until=view.skipped[1].timestamp() if view.skipped else None,
    )


def draw_schedules(page: Page, document: Schedules) -> None:
    """A few lines a schedule."""
    if not document.schedules:
        page.line("no schedules")
    for row in document.schedules:
        paused = ("  paused", "yellow") if row.paused else ""
        page.line((row.name, "bold"), f"  {row.workflow}  ", (row.when, DIM), paused)
        if row.next:
            page.line("next     ", ", ".join(moment(at) for at in row.next), indent=2)
        if row.last_run:
            page.line("last     ", row.last_run, indent=2)
        if row.skipped_from is not None and row.skipped_until is not None:
            span = f"from {moment(row.skipped_from)} to before {moment(row.skipped_until)} (catch_up={row.catch_up})"
            page.line("skipped  ", span, indent=2)
        if row.paused:
            page.line("resume   ", shell("surefoot", "schedules", "--resume", row.name), indent=2)
