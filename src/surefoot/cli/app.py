"""The commands: each opens the store, makes one document of `shapes`, and prints it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

import surefoot

from ..core.errors import RunEnded, SurefootError
from ..core.ids import check_id
from ..core.run import FINAL, RunStatus
from . import approvals, draw, proxy, receivers, schedules, signal
from .desk import Desk, url_of
from .doctor import examine
from .doubts import list_doubts
from .exits import Exit, Failed, failure_of
from .migrate import draw_migrated, migrate_store
from .order import Db, Json, Order, RunId, give, order_of
from .resolve import check_decision, resolve
from .shapes import Cancelled, Runs
from .text import safe
from .timeline import show_run
from .worker import add_commands

HELP = "Look at runs, end the doubts that only a person can end, and see what is stuck."
EPILOG = """\b
Exit codes:
  0  fine
  1  something needs attention (doctor)
  2  bad usage or input
  3  an extra is not installed
  4  no such store, run or effect
  5  the store was refused, is locked or damaged
  6  not possible as things stand: not parked, or ended already

With --json stdout is one JSON document; its shapes are the classes in surefoot.cli.shapes. An error is one line
{"error": message, "code": exit code} on stderr.
"""
FORWARD: dict[str, Any] = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

app = typer.Typer(help=HELP, epilog=EPILOG, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

app.add_typer(receivers.app, name="receivers")
add_commands(app)
signal.add_commands(app)
approvals.add_commands(app)
schedules.add_commands(app)
proxy.add_commands(app)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    db: Db = None,
    as_json: Json = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Look at runs, end the doubts that only a person can end, and see what is stuck."""
    context.obj = Order(db, as_json)
    if version:
        name = surefoot.__version__
        print(json.dumps({"version": name}) if as_json else f"surefoot {name}")
        raise typer.Exit(0)
    if context.invoked_subcommand is None:
        if as_json:
            raise Failed(Exit.BAD_INPUT, "expected a command; `surefoot --help` lists them")
        print(context.get_help())
        raise typer.Exit(Exit.BAD_INPUT)


@app.command()
def runs(
    context: typer.Context,
    status: Annotated[
        list[RunStatus] | None,
        typer.Option("--status", metavar="STATUS", help=f"May be repeated: {', '.join(RunStatus)}."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 1000,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """List runs, newest first."""
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        found = desk.store.find_runs(status or (), limit=limit + 1)
        document = Runs(runs=[desk.run_row(run) for run in found[:limit]], more=len(found) > limit)
        give(order, document, lambda page: draw.draw_runs(page, document, desk.now))
    return Exit.FINE


@app.command()
def show(
    context: typer.Context,
    run: RunId,
    diverged: Annotated[bool, typer.Option("--diverged", help="What is recorded, and what the code asks for.")] = False,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Show one run: its timeline and its effects.

    The timeline has attempts, tokens, crashes and decisions; an effect has its key, status and evidence.
    """
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        document = show_run(desk, run)
        if diverged:
            give(order, document, lambda page: draw.draw_diverged(page, document))
        else:
            give(order, document, lambda page: draw.draw_shown(page, document, desk.now))
    if document.damage:
        raise Failed(Exit.STORE, document.damage)
    return Exit.FINE


@app.command()
def doubts(context: typer.Context, db: Db = None, as_json: Json = False) -> int:
    """List effects in doubt, and requests that disagree.

    Each with the arithmetic, the evidence, what comes next, and the command that decides it. Exits 0, found or not.
    """
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        document = list_doubts(desk)
        give(order, document, lambda page: draw.draw_doubts(page, document))
    return Exit.FINE


@app.command("resolve")
def resolve_command(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or - outside any run.", show_default=False)],
    effect: Annotated[
        str,
        typer.Argument(
            metavar="EFFECT", help="4 or more hex digits of its key, or its slot or name.", show_default=False
        ),
    ],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Always: what you saw, and where. Kept.")] = "",
    happened: Annotated[
        str | None, typer.Option("--happened", metavar="JSON", help="It happened; this is its receipt.")
    ] = None,
    did_not_happen: Annotated[bool, typer.Option("--did-not-happen", help="It did not; it is sent again.")] = False,
    abandon: Annotated[bool, typer.Option("--abandon", help="Nobody can tell; never send it.")] = False,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Who says so; else the OS user.")] = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Decide a parked effect; who, when and why are kept.

    Say exactly one of --happened, --did-not-happen and --abandon, and always --why. Then run the run again.
    """
    order = order_of(context, db, as_json)
    decision = check_decision(happened, did_not_happen, abandon, why, who)
    with Desk(order.db) as desk:
        document = resolve(desk, run, effect, decision)
        give(order, document, lambda page: draw.draw_resolved(page, document))
    return Exit.FINE


@app.command()
def doctor(context: typer.Context, db: Db = None, as_json: Json = False) -> int:
    """Say what is stuck, since when, and what to do.

    Every unfinished run and every open effect is listed; exits 1 if any of them needs attention.
    """
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        document = examine(desk)
        give(order, document, lambda page: draw.draw_checkup(page, document, desk.now))
    return Exit.ATTENTION if document.attention else Exit.FINE


@app.command()
def cancel(
    context: typer.Context,
    run: RunId,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept with the run.")] = "cancelled by hand",
    compensate: Annotated[bool, typer.Option("--compensate", help="Undo its confirmed effects, last first.")] = False,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Ask a run, and the runs that it started, to stop.

    No new effect begins from then on; what was sent is settled, not dropped.
    """
    order = order_of(context, db, as_json)
    check_id(reason, "--reason")
    with Desk(order.db) as desk:
        check_id(run, "RUN")
        try:
            desk.sf.cancel(run, reason=reason, compensate=compensate)
        except RunEnded as error:
            raise Failed(Exit.ILLEGAL, str(error)) from None
        after, _, _ = desk.read_run(run)
        if after.status in FINAL and after.status is not RunStatus.CANCELLED:
            raise Failed(Exit.ILLEGAL, f"run {run!r} had ended already ({after.status}); nothing was cancelled")
        follows = ""
        if after.status is RunStatus.RUNNING:
            follows = f"{desk.owner_name(after.owner)} was asked: it stops at its next step"
        elif after.status not in FINAL:
            follows = f"it left effects open: run it once more with the same id, which settles them ({after.reason})"
        document = Cancelled(run=desk.run_row(after), next=follows)
        give(order, document, lambda page: draw.draw_cancelled(page, document))
    return Exit.FINE


@app.command()
def migrate(
    context: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if there is something to do.")] = False,
    grant: Annotated[
        str | None, typer.Option("--grant", metavar="ROLE", help="Then give this role what a worker needs.")
    ] = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Make a PostgreSQL store's tables, or bring them up to date.

    Run it once, before workers of a new version start; it may be run again, and by several at once.
    """
    order = order_of(context, db, as_json)
    document = migrate_store(url_of(order.db), check=check, grant=grant)
    give(order, document, lambda page: draw_migrated(page, document))
    return Exit.FINE if document.now == document.needed else Exit.ATTENTION


@app.command(context_settings=FORWARD)
def demo(context: typer.Context) -> int:
    """Kill agents and count what happened twice.

    `surefoot demo --help` lists its options.
    """
    try:
        from ..demo.main import app as forwarded
    except ModuleNotFoundError as error:
        raise Failed(Exit.MISSING_EXTRA, f"the demo needs {error.name}: pip install 'surefoot[demo]'") from error
    arguments = list(context.args)
    if context.obj.as_json and "--json" not in arguments:
        arguments.append("--json")
    for place, word in reversed(list(enumerate(arguments))):
        follower = arguments[place + 1] if place + 1 < len(arguments) else "--"
        if word == "--json" and follower != "-" and follower.startswith("-"):
            arguments.insert(place + 1, "-")  # everywhere else --json takes no value and means stdout
    given: Any = forwarded(args=arguments, prog_name="surefoot demo", standalone_mode=False)
    return int(given or 0)


@app.command(context_settings=FORWARD)
def crashtest(context: typer.Context) -> int:
    """Kill any agent at each of its requests, restart it, and count.

    `surefoot crashtest --help` lists its options; `crashtest record` records real services first.
    """
    from ..crashtest.main import run as forwarded

    return forwarded([*context.args, *(["--json"] if context.obj.as_json and "--json" not in context.args else [])])


# --- running them -----------------------------------------------------------------------------------------------

# What typer raises for a command line that makes no sense; where the class lives differs between its versions.
_ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def run(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit code and never shows a traceback for what a user can cause."""
    for stream in (sys.stdout, sys.stderr):
        change = getattr(stream, "reconfigure", None)
        if change is not None:
            change(errors="backslashreplace")
    as_json = "--json" in arguments
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except Failed as failed:
        return _complain(failed, as_json)
    except SurefootError as error:
        return _complain(failure_of(error), as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except (KeyboardInterrupt, typer.Abort):
        return 130


def _run(arguments: Sequence[str]) -> int:
    try:
        given: Any = app(args=list(arguments), prog_name="surefoot", standalone_mode=False)
    except _ClickException as error:
        raise Failed(Exit.BAD_INPUT, error.format_message()) from None
    return int(given or 0)


def _complain(failed: Failed, as_json: bool) -> int:
    if as_json:
        text = json.dumps({"error": failed.message, "code": int(failed.code)})
    else:
        text = "surefoot: " + "\n".join(safe(line) for line in failed.message.split("\n"))
    print(text, file=sys.stderr)
    return int(failed.code)
