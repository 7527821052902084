"""What every command is told: which store, and whether to print JSON; and how it gives its document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from .page import Page
from .shapes import Shape

Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PATH",
        help="The store: a path, sqlite:///path or postgresql://… Else $SUREFOOT_DB, else agents.db.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document (see surefoot.cli.shapes).")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]


class Order:
    """What was said before the command's name."""

    def __init__(self, db: str | None, as_json: bool) -> None:
        """The command's own options come first."""
        self.db, self.as_json = db, as_json


def order_of(context: typer.Context, db: str | None, as_json: bool) -> Order:
    """The command's own options, else those that were said before its name."""
    before: Order = context.obj
    return Order(db or before.db, as_json or before.as_json)


def give(order: Order, document: Shape, drawing: Callable[[Page], None]) -> None:
    """Print the document, as JSON or for people."""
    if order.as_json:
        print(msgspec.json.encode(document).decode())
    else:
        drawing(Page())
