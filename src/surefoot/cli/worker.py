"""`surefoot worker`, `queues`, `retry`. The worker alone imports a user's code, since it runs it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections import Counter
from typing import Annotated, Any, cast

import typer

from ..core.dispatch import Ready, unserved
from ..core.errors import UsageError
from ..runtime.app import Surefoot
from ..runtime.opening import patience
from .desk import DEFAULT_DB, EVERYTHING, VARIABLE, Desk, url_of
from .exits import Exit, Failed
from .order import Db, Json, RunId, give, order_of
from .page import Page
from .shapes import QueueRow, Queues, Retried
from .text import ago

NOT_THEIRS = ("<frozen ", os.path.dirname(os.__file__), __file__)
"""Where lines of a traceback come from that say nothing about a user's module: Python's library, and this file."""
AGAIN = "run it again with the same id"


def add_commands(app: typer.Typer) -> None:
    """Give the program these commands."""
    app.command()(worker)
    app.command()(queues)
    app.command()(retry)


# --- worker -----------------------------------------------------------------------------------------------------


def worker(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:NAME]",
            help="The module that holds the workflows, and the Surefoot object in it.",
            show_default=False,
        ),
    ],
    queue: Annotated[
        list[str] | None, typer.Option("--queue", metavar="NAME", help="Take runs from it; may be repeated.")
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, max=10_000, help="At most so many runs at a time.")
    ] = 100,
    db: Db = None,
) -> int:
    """Work on queued runs until SIGTERM or Ctrl-C.

    The store is --db, else the module's one Surefoot object, else $SUREFOOT_DB. On the first signal running steps end
    and runs are given back; a second one ends at once.
    """
    url = order_of(context, db, False).db
    module, _, name = target.partition(":")
    with patience():  # while the database restarts, say: in the module's own `Surefoot(...)`, too
        sf = find_surefoot(load(module), module, name, url)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with sf:
        ready = sf.worker(queues=queue or ("default",), concurrency=concurrency)
        code = ", ".join(f"{name} {version!r}" if version else name for name, version in ready.served.workflows)
        queues_served = ", ".join(ready.served.queues)
        logging.getLogger("surefoot").info("working on queues %s with %s, in %s", queues_served, code, place_of(sf))
        ready.run()
    return Exit.FINE


def load(module: str) -> Any:
    """The user's module, found as `python -m` would find it."""
    if not module or not all(part.isidentifier() for part in module.split(".")):
        raise Failed(
            Exit.BAD_INPUT, f"expected MODULE or MODULE:NAME, such as agents or shop.agents:sf; found {module!r}"
        )
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise Failed(Exit.BAD_INPUT, _broken(module, error)) from error
        hint = f"; a module's name has no .py: {module.removesuffix('.py')}" if module.endswith(".py") else ""
        raise Failed(Exit.BAD_INPUT, f"there is no module {module!r} here ({here}) or on sys.path{hint}") from None
    except (Exception, SystemExit) as error:
        raise Failed(Exit.BAD_INPUT, _broken(module, error)) from error


def _broken(module: str, error: BaseException) -> str:
    """What went wrong where in the user's own code: the innermost line outside the library and installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_THEIRS)]
    theirs = [frame for frame in own if "site-packages" not in frame.filename]
    place = [*frames, *own, *theirs][-1]
    where = f"{place.filename}:{place.lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    said = f": {error}" if str(error) else ""
    advice = "; what only a program does belongs under `if __name__ ==`" if isinstance(error, SystemExit) else ""
    return f"importing {module!r} failed: {type(error).__name__}{said} ({where}){advice}"


def find_surefoot(loaded: Any, module: str, name: str, url: str | None) -> Surefoot:
    """The Surefoot to work for: of `url`, or the one in the module."""
    if name and not isinstance(getattr(loaded, name, None), Surefoot):
        found = type(getattr(loaded, name)).__name__ if hasattr(loaded, name) else "nothing"
        raise Failed(Exit.BAD_INPUT, f"expected a Surefoot at {module}:{name}, found {found}")
    if url is not None:
        return _open(url, given=True)
    if name:
        return getattr(loaded, name)
    content = cast("dict[str, object]", vars(loaded))
    held: dict[int, tuple[str, Surefoot]] = {}
    for key, each in content.items():
        if isinstance(each, Surefoot):
            held.setdefault(id(each), (key, each))
    if len(held) > 1:
        names = ", ".join(f"{module}:{key}" for key, _ in held.values())
        raise Failed(Exit.BAD_INPUT, f"{module} holds several Surefoot objects; say which: {names}")
    return next((each for _, each in held.values()), None) or _open(url_of(None), given=False)


def _open(url: str, *, given: bool) -> Surefoot:
    """The store that was named; it is made if it is not there, unless nobody named it."""
    if url in ("memory:", ":memory:"):
        raise Failed(
            Exit.BAD_INPUT, "memory: holds nothing that another process could start; give --db a file or a URL"
        )
    if url == DEFAULT_DB and not given and not os.environ.get(VARIABLE) and not os.path.exists(url):
        raise Failed(
            Exit.NOT_FOUND,
            f"no store is named, and there is no {DEFAULT_DB} here ({os.getcwd()}); give --db, set {VARIABLE}, "
            "or make one Surefoot(...) in the module",
        )
    return Surefoot(url)


def place_of(sf: Surefoot) -> str:
    """Where the store of a worker is, without a password: a worker of another store than was meant looks idle."""
    store: Any = sf.store
    return store.describe()[0] if hasattr(store, "describe") else str(getattr(store, "path", "memory:"))


# --- queues -----------------------------------------------------------------------------------------------------


def queues(context: typer.Context, db: Db = None, as_json: Json = False) -> int:
    """List queues: their limits, what waits and since when, what runs, and how many workers serve them."""
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        document = list_queues(desk)
        give(order, document, lambda page: draw_queues(page, document, desk.now))
    return Exit.FINE


def list_queues(desk: Desk) -> Queues:
    """Every queue that has limits, rows or workers."""
    board = desk.store.board
    limits = {queue.name: queue.limits for queue in board.find_queues()}
    rows = board.backlog(limit=EVERYTHING)
    serving = desk.serving()
    now = desk.sf.engine.time()
    running, ready, later = (Counter[str]() for _ in range(3))
    oldest: dict[str, float] = {}
    for row in rows:
        kind = running if row.owner else later if row.due_at > now else ready
        kind[row.queue] += 1
        if kind is ready:
            oldest[row.queue] = min(oldest.get(row.queue, row.since), row.since)
    stuck = Counter(row.queue for row in rows if not row.owner and unserved(row, serving))
    names = {*limits, *(row.queue for row in rows), *(name for served in serving for name in served.queues)}
    return Queues(
        queues=[
            QueueRow(
                name=name,
                concurrency=limits[name].concurrency if name in limits else 0,
                per_worker=limits[name].per_worker if name in limits else 0,
                per_key=limits[name].per_key if name in limits else 0,
                rate=limits[name].rate if name in limits else 0,
                period_seconds=limits[name].period_seconds if name in limits else 0.0,
                ready=ready[name],
                later=later[name],
                running=running[name],
                unserved=stuck[name],
                oldest_at=oldest.get(name, 0.0),
                workers=sum(name in served.queues for served in serving),
            )
            for name in sorted(names)
        ]
    )


def draw_queues(page: Page, document: Queues, now: float) -> None:
    """One line a queue, with its limits under it."""
    if not document.queues:
        page.line("no queues")
        return
    width = min(max(len(row.name) for row in document.queues), 24)
    page.line((f"{page.cell('QUEUE', width)}  {'READY':>7}{'LATER':>7}{'RUNNING':>9}{'WORKERS':>9}  OLDEST", "bold"))
    for row in document.queues:
        oldest = ago(now - row.oldest_at) if row.oldest_at else "-"
        page.line(
            (page.cell(row.name, width), "bold"),
            f"  {row.ready:>7}{row.later:>7}{row.running:>9}{row.workers:>9}  {oldest}",
        )
        if limits := limits_text(row):
            page.line(f"limits: {limits}", indent=4)
        if row.unserved:
            page.line((f"{row.unserved} that no worker serves; `surefoot doctor` says why", "yellow"), indent=4)


def limits_text(row: QueueRow) -> str:
    """The limits in words; "" if there are none."""
    said = [
        f"{value} {words}"
        for value, words in (
            (row.concurrency, "at a time"),
            (row.per_worker, "in one worker"),
            (row.per_key, "of one key"),
            (row.rate, f"starts in {row.period_seconds:g} s"),
        )
        if value
    ]
    return ", ".join(said)


# --- retry ------------------------------------------------------------------------------------------------------


def retry(
    context: typer.Context,
    run: RunId,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept with the run.")] = "retried by hand",
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Let a run go on that was quarantined, diverged, damaged or waits.

    What it has recorded stays; a worker may take it from now on.
    """
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        try:
            desk.sf.retry(run, why=why)
        except UsageError as error:
            raise Failed(Exit.ILLEGAL if desk.store.find_run(run) else Exit.BAD_INPUT, str(error)) from None
        after, _, _ = desk.read_run(run)
        document = Retried(run=desk.run_row(after), next=what_follows(desk, ready_row(desk, run)))
        give(order, document, lambda page: draw_retried(page, document))
    return Exit.FINE


def ready_row(desk: Desk, run: str) -> Ready | None:
    """The run's row in its queue, if it still has one."""
    return next((row for row in desk.store.board.backlog(limit=EVERYTHING) if row.run_id == run), None)


def what_follows(desk: Desk, row: Ready | None) -> str:
    """Who will take a run that is ready."""
    why = "" if row is None else unserved(row, desk.serving())
    return f"{AGAIN}, or start a worker: {why}" if why else "a worker takes it"


def draw_retried(page: Page, document: Retried) -> None:
    """What is so now, and who goes on."""
    page.line("run ", (document.run.id, "bold"), "  ", page.status(document.run.status))
    page.prose(document.next, indent=2, label="next  ")
