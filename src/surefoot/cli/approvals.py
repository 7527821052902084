"""A person looks at what is asked for, and approves or denies exactly that.

`approve` reads the approval, shows it, and decides about the digest that it has read; the store refuses when another is
asked for by then, so what was shown is what was approved.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from ..core.dispatch import ready_of
from ..core.errors import ApprovalNotFound
from ..core.run import Run
from ..runtime.decisions import ApprovalView
from .desk import Desk
from .exits import Exit, Failed
from .order import Db, Json, give, order_of
from .page import Page
from .resolve import user_name
from .shapes import ApprovalDecided, ApprovalRow, Approvals
from .text import ago, moment
from .worker import what_follows

BY_WIDTH_MAX = 20
ApprovalId = Annotated[
    str, typer.Argument(metavar="ID", help="The approval's id, or its first 4 or more characters.", show_default=False)
]
Who = Annotated[str | None, typer.Option("--as", metavar="NAME", help="Who decides; else the OS user.")]
Digest = Annotated[
    str | None, typer.Option("--digest", metavar="HEX", help="Decide only if this is the digest that is asked for.")
]


def list_approvals(desk: Desk) -> Approvals:
    """What is asked for and not decided, the soonest to expire first."""
    return Approvals(approvals=[row_of(view) for view in desk.sf.approvals()])


def show_approval(desk: Desk, approval_id: str) -> ApprovalRow:
    """One approval, with all of its artifact."""
    return row_of(_find(desk, approval_id))


def decide(
    desk: Desk, approval_id: str, *, approved: bool, who: str | None, why: str, digest: str | None = None
) -> ApprovalDecided:
    """Decide, durably; Failed when there is no such approval, ApprovalClosed when it cannot be decided any more."""
    view = _find(desk, approval_id)
    name = user_name() if who is None else who
    seen = view.digest if digest is None else digest  # an empty one is one that was not filled in
    if approved:
        after = desk.sf.approve(view.id, who=name, digest=seen, why=why)
    else:
        after = desk.sf.deny(view.id, who=name, why=why, digest=seen)
    goes_on = _who_goes_on(desk, desk.store.find_run(after.run))
    return ApprovalDecided(approval=row_of(after), next=f"run {after.run!r}: {goes_on}")


def _who_goes_on(desk: Desk, run: Run | None) -> str:
    """Whoever waits where the run was called, or a worker, which may have taken it already."""
    row = None if run is None else ready_of(run)
    if row is not None and not row.owner:
        return what_follows(desk, row)
    if run is not None and run.queue:
        return "a worker has taken it"
    return "it goes on where somebody runs it"


def _find(desk: Desk, approval_id: str) -> ApprovalView:
    try:
        return desk.sf.approval(approval_id)
    except ApprovalNotFound as missing:
        raise Failed(Exit.NOT_FOUND, str(missing)) from None


def row_of(view: ApprovalView) -> ApprovalRow:
    """The approval as it is printed."""
    decision = view.decision
    artifact: Any = msgspec.json.decode(view.artifact) if view.artifact else None
    return ApprovalRow(
        id=view.id,
        run=view.run,
        by=view.by,
        status=view.status,
        digest=view.digest,
        until=view.until,
        text=view.text,
        effect=view.effect,
        artifact=artifact,
        asked_at=view.asked_at,
        who=decision.who if decision else "",
        why=decision.why if decision else "",
        decided_at=decision.at if decision else 0.0,
    )


# --- for people -------------------------------------------------------------------------------------------------


def draw_approvals(page: Page, document: Approvals, now: float) -> None:
    """One approval on two lines: who is asked and until when; what exactly."""
    if not document.approvals:
        page.line("nothing is asked for")
        return
    width = min(max(len(row.by) for row in document.approvals), BY_WIDTH_MAX)
    page.line((f"{'ID':<14}{'STATUS':<11}{'LEFT':<10}{page.cell('BY', width)}  RUN", "bold"))
    for row in document.approvals:
        page.line(
            (f"{row.id:<14}", "bold"),
            page.status(row.status, 11),
            f"{_left(row.until - now):<10}{page.cell(row.by, width)}  {row.run}",
        )
        page.line(row.text, indent=4)


def _left(seconds: float) -> str:
    return "none" if seconds <= 0 else ago(seconds).removesuffix(" ago")


def draw_approval(page: Page, row: ApprovalRow) -> None:
    """Everything about one approval; its artifact whole, as JSON."""
    page.line("approval ", (row.id, "bold"), "  ", page.status(row.status))
    page.line(f"run     {row.run}", indent=2)
    page.line(f"by      {row.by}", indent=2)
    page.line(f"until   {moment(row.until)}", indent=2)
    page.line(f"digest  {row.digest}", indent=2)
    if row.who:
        page.prose(
            f"{row.who}, {moment(row.decided_at)}{row.why and ': ' + row.why}", indent=2, label=f"{row.status}  "
        )
    page.line(f"to send {row.effect} with" if row.effect else "artifact", indent=2)
    for line in msgspec.json.format(msgspec.json.encode(row.artifact), indent=2).decode().split("\n"):
        page.line(line, indent=4)


def draw_decided(page: Page, document: ApprovalDecided) -> None:
    """What was decided about what."""
    row = document.approval
    page.line("approval ", (row.id, "bold"), " is now ", page.status(row.status), f", by {row.who}")
    page.line(row.text, indent=4)
    page.line(f"digest  {row.digest}", indent=4)
    page.prose(document.next, label="next  ")


# --- commands ---------------------------------------------------------------------------------------------------

group = typer.Typer(help="What waits for a person's approval, and one of them in full.")


def add_commands(app: typer.Typer) -> None:
    """`approvals`, `approve` and `deny`."""
    app.add_typer(group, name="approvals")
    app.command("approve")(approve_command)
    app.command("deny")(deny_command)


@group.callback(invoke_without_command=True)
def list_command(context: typer.Context, db: Db = None, as_json: Json = False) -> None:
    """List what waits for approval, the soonest to expire first; `approvals show ID` prints one in full."""
    order = context.obj = order_of(context, db, as_json)
    if context.invoked_subcommand is None:
        with Desk(order.db) as desk:
            document = list_approvals(desk)
            give(order, document, lambda page: draw_approvals(page, document, desk.now))


@group.command("show")
def show_command(context: typer.Context, approval: ApprovalId, db: Db = None, as_json: Json = False) -> int:
    """Show one approval: exactly what is asked for, its digest, and what was decided."""
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        document = show_approval(desk, approval)
        give(order, document, lambda page: draw_approval(page, document))
    return Exit.FINE


def approve_command(
    context: typer.Context,
    approval: ApprovalId,
    who: Who = None,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Kept with the decision.")] = "",
    digest: Digest = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Approve exactly what is asked for; the first decision counts.

    Look at it first with `surefoot approvals show ID`; --digest holds you to what you saw.
    """
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        document = decide(desk, approval, approved=True, who=who, why=why, digest=digest)
        give(order, document, lambda page: draw_decided(page, document))
    return Exit.FINE


def deny_command(
    context: typer.Context,
    approval: ApprovalId,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Always: the run gets it, and it is kept.")] = "",
    who: Who = None,
    digest: Digest = None,
    db: Db = None,
    as_json: Json = False,
) -> int:
    """Deny what is asked for, with the reason; the first decision counts."""
    order = order_of(context, db, as_json)
    with Desk(order.db) as desk:
        document = decide(desk, approval, approved=False, who=who, why=why, digest=digest)
        give(order, document, lambda page: draw_decided(page, document))
    return Exit.FINE
