"""`surefoot signal`: sends a message to a run, as `sf.signal` does; no code of the run's is needed for it."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from ..core.errors import RunEnded
from ..core.ids import check_id
from .desk import Desk
from .exits import Exit, Failed
from .order import Db, Json, RunId, give, order_of
from .page import Page
from .resolve import user_name
from .shapes import Signalled


def add_commands(app: typer.Typer) -> None:
    """Give the program this command."""
    app.command()(signal)


def signal(
    context: typer.Context,
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the run waits for.", show_default=False)],
    value: Annotated[str, typer.Argument(metavar="[JSON]", help="Its value as JSON.", show_default=False)] = "null",
    message: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The same id again is the same message.")
    ] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Only the first message of this name counts; exits 6 if it is not this.")
    ] = False,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Who sends it; else the OS user.")] = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Send a message to a run that waits for it, now or later.

    It is kept until the run reads it, once. Without --id, sending twice sends two messages.
    """
    order = order_of(context, db, as_json)
    content = _read_value(value)
    sender = check_id(who or user_name(), "--who")
    with Desk(order.db) as desk:
        try:
            kept = desk.sf.signal(run, name, content, message=message, first=first, who=sender)
        except RunEnded as error:
            raise Failed(Exit.ILLEGAL, str(error)) from None
        if not kept:
            raise Failed(Exit.ILLEGAL, f"another message {name!r} was first for run {run!r}; this one was not kept")
        after, _, _ = desk.read_run(run)
        document = Signalled(run=desk.run_row(after), name=name, value=content, who=sender)
        give(order, document, lambda page: draw_signalled(page, document))
    return Exit.FINE


def _read_value(text: str) -> object:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Failed(
            Exit.BAD_INPUT,
            f"the value must be JSON, such as 7, '\"yes\"' or '{{\"ok\": true}}'; found {text[:80]!r}: {error}",
        ) from None


def draw_signalled(page: Page, document: Signalled) -> None:
    """For people."""
    page.line(
        "run ", (document.run.id, "bold"), f" has the message {document.name}; it is ", page.status(document.run.status)
    )
