"""`surefoot receivers`: which contract a service has, and why. Reads the package's own data and no store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..core.errors import UsageError
from .exits import Exit, Failed
from .page import Page
from .shapes import Shape

if TYPE_CHECKING:
    from ..receivers import Receiver

app = typer.Typer(help="What services do with a repeat, and the contract that follows.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document (see surefoot.cli.receivers).")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The receiver's id, such as stripe.v1.", show_default=False)]
LABEL_WIDTH = 18


class ReceiverRow(Shape, frozen=True):
    """One receiver; `contract` is its promise on one line."""

    id: str
    name: str
    category: str
    class_: str = msgspec.field(name="class")
    contract: str


class ReceiverRows(Shape, frozen=True):
    """`surefoot receivers list` and `search`."""

    receivers: list[ReceiverRow]


class Said(Shape, frozen=True):
    """One statement in plain words under its heading."""

    heading: str
    text: str


class ReceiverShown(Shape, frozen=True):
    """`surefoot receivers show`: the facts as stored, the contracts that follow, and both in plain words.

    `contracts` has one entry `contract`, or `prepare` and `commit`. `age_days`: since somebody checked the facts.
    """

    receiver: Any
    contracts: dict[str, Any]
    said: list[Said]
    age_days: int


@app.command("list")
def list_command(
    context: typer.Context,
    class_: Annotated[str, typer.Option("--class", metavar="CLASS", help="Only this class, such as key_replay.")] = "",
    category: Annotated[str, typer.Option("--category", metavar="CATEGORY", help="Only these, such as email.")] = "",
    as_json: Json = False,
) -> int:
    """List the receivers, with the contract of each."""
    from ..receivers import Category, Class, names
    from ..receivers.load import load

    _check_word("--class", class_, Class)
    _check_word("--category", category, Category)
    found = (load(name) for name in names())
    kept = [each for each in found if class_ in ("", each.class_) and category in ("", each.category)]
    _give_rows(context, kept, as_json)
    return Exit.FINE


@app.command("search")
def search_command(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="All of them.", show_default=False)],
    as_json: Json = False,
) -> int:
    """List the receivers that hold every word, in their name or in any fact."""
    from ..receivers import search

    _give_rows(context, search(" ".join(words)), as_json)
    return Exit.FINE


@app.command("show")
def show_command(context: typer.Context, name: Name, as_json: Json = False) -> int:
    """Show one receiver: its contract, the arithmetic, the facts and their sources."""
    from ..receivers.catalog import age_days
    from ..receivers.describe import contracts_of, describe
    from ..receivers.load import load

    try:
        receiver = load(name)
    except UsageError as error:
        raise Failed(Exit.NOT_FOUND, str(error)) from None
    document = ReceiverShown(
        receiver=msgspec.to_builtins(receiver),
        contracts={name: msgspec.to_builtins(made) for name, made in contracts_of(receiver).items()},
        said=[Said(heading=line.heading, text=line.text) for line in describe(receiver)],
        age_days=age_days(receiver, time.time()),
    )
    _give(context, document, lambda page: draw_shown(page, document), as_json)
    return Exit.FINE


def draw_rows(page: Page, document: ReceiverRows) -> None:
    """One line a receiver."""
    if not document.receivers:
        page.line("no receiver has all of that; `receivers.define(...)` describes one of your own")
        return
    width = max(len(row.id) for row in document.receivers)
    class_width = max(len(row.class_) for row in document.receivers)
    page.line((f"{'RECEIVER':<{width}}  {'CLASS':<{class_width}}  CONTRACT", "bold"))
    for row in document.receivers:
        page.line((page.cell(row.id, width), "bold"), f"  {page.cell(row.class_, class_width)}  {row.contract}")


def draw_shown(page: Page, document: ReceiverShown) -> None:
    """Each heading once, its statements below one another."""
    page.line("receiver ", (document.receiver["id"], "bold"))
    before = ""
    for said in document.said:
        label = said.heading if said.heading != before else ""
        page.prose(said.text, indent=2, label=f"{label:<{LABEL_WIDTH}}")
        before = said.heading
    if document.age_days > 365:
        page.prose(f"these facts are {document.age_days} days old: read the sources again", indent=2, label="beware  ")


def _check_word(option: str, word: str, words: Iterable[str]) -> None:
    if word and word not in (known := list(words)):
        raise Failed(Exit.BAD_INPUT, f"{option} {word!r} is not known; expected one of {', '.join(known)}")


def _give_rows(context: typer.Context, receivers: list[Receiver], as_json: bool) -> None:
    from ..receivers.describe import promise

    rows = [
        ReceiverRow(id=each.id, name=each.name, category=each.category, class_=each.class_, contract=promise(each))
        for each in receivers
    ]
    document = ReceiverRows(receivers=rows)
    _give(context, document, lambda page: draw_rows(page, document), as_json)


def _give(context: typer.Context, document: Shape, drawing: Callable[[Page], None], as_json: bool) -> None:
    if as_json or context.obj.as_json:
        print(msgspec.json.encode(document).decode())
    else:
        drawing(Page())
