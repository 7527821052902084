"""The decision table: what becomes of an effect, per class of receiver and per way to get into doubt.

Each cell is performed: an agent in a process of its own is killed, restarted (or raced by a second one), and what its
receiver did is counted in the twin's ledger. `python -m tests.receivers.decision_table` performs all of it and writes
`docs/decision-table.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """What is done with an effect in doubt."""

    RESEND = "resend"
    RESEND_FETCH = "resend, fetch"
    RESEND_ASK = "resend, ask"
    ASK_SEND = "ask, send"
    ASK_PARK = "ask, park"
    PARK = "park"
    REFUSED = "refused"


MEANS = {
    Way.RESEND: "the recorded request goes again under its key, and the receiver performs it once",
    Way.RESEND_FETCH: "the same, and the refusal of the repeat names what the first one made",
    Way.RESEND_ASK: "the same, and where the repeat is refused a lookup tells whose it is",
    Way.ASK_SEND: "the receiver is asked: found, its receipt is taken; clearly absent, it is sent again",
    Way.ASK_PARK: "the receiver is asked: found, its receipt is taken; not found, a person decides",
    Way.PARK: "a person decides",
    Way.REFUSED: "the receiver refuses, and that is how it ends",
}


class Column(StrEnum):
    """How an effect gets into doubt."""

    NOT_SENT = "surely not sent"
    WITHIN = "in doubt within the margin"
    PAST = "in doubt past it"
    TOLD_500 = "a recorded 500"
    CHANGED = "payload changed"
    TWO_AT_ONCE = "two processes at once"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One way to die. `fault`: what the request meets; `acts`: whether the receiver acted, by the time of the restart.

    `dies`: "" killed by the test, "before" the first send, "recorded": when the first answer was recorded.
    `until`: what the twin has seen when the test kills; `sends`: how many requests left before.
    """

    name: str
    fault: str
    acts: bool
    dies: str = ""
    until: str = ""
    sends: int = 1


BEFORE = Point(name="killed before it left", fault="none", acts=False, dies="before", sends=0)
LOST = Point(name="killed when it had arrived, never performed", fault="lost_request", acts=False, until="arrived")
LATE = Point(name="killed when it had arrived, performed later", fault="late", acts=True, until="held")
ACTED = Point(name="killed when it was performed, before the answer", fault="lost_answer", acts=True, until="performed")
HELD_500 = Point(name="killed with a 500 in hand, nothing performed", fault="error_before", acts=False, until="says")
HELD_500_ACTED = Point(name="killed with a 500 in hand, performed", fault="error_after", acts=True, until="says")
TOLD_500 = Point(name="a 500 recorded, nothing performed, killed", fault="error_before", acts=False, dies="recorded")
TOLD_500_UNDONE = Point(
    name="a 500 recorded, begun and undone, killed", fault="error_during", acts=False, dies="recorded"
)
TOLD_500_ACTED = Point(name="a 500 recorded, performed, killed", fault="error_after", acts=True, dies="recorded")
REFUSED_CONNECTION = Point(name="connection refused, recorded, killed", fault="", acts=False, dies="recorded", sends=0)
ANOTHER_RUN = Point(name="another run asks with another payload", fault="lost_answer", acts=True, until="performed")
STORE_LOST = Point(name="the store is lost, the payload is another", fault="none", acts=True)
BOTH_LIVE = Point(name="two processes ask, both live", fault="hold", acts=True, until="held")
ONE_KILLED = Point(name="two processes ask, the one that sent is killed", fault="late", acts=True, until="held")

POINTS: dict[Column, tuple[Point, ...]] = {
    Column.NOT_SENT: (REFUSED_CONNECTION,),
    Column.WITHIN: (BEFORE, LOST, LATE, ACTED, HELD_500, HELD_500_ACTED),
    Column.PAST: (BEFORE, LOST, LATE, ACTED),
    Column.TOLD_500: (TOLD_500, TOLD_500_UNDONE, TOLD_500_ACTED),
    Column.CHANGED: (ANOTHER_RUN, STORE_LOST),
    Column.TWO_AT_ONCE: (BOTH_LIVE, ONE_KILLED),
}


TELLING = (LOST, ACTED, TOLD_500, TOLD_500_ACTED, STORE_LOST, ONE_KILLED)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is expected of one receiver. `told_500` and `lost_store` only where they differ from `within`, or exist.

    `more`: a second receiver of its class, of which only those points are performed that tell it from
    the first. `why`: where the row is another one than the catalog's default action for it.
    """

    receiver: str
    within: Way
    past: Way
    told_500: Way | None = None
    lost_store: Way | None = None
    operation: str = "create"
    can_ask: bool = True
    more: bool = False
    why: str = ""

    def way(self, column: Column, point: Point) -> Way | None:
        """What is expected to be done; None where the point does not exist for this receiver."""
        if self.more and point not in TELLING:
            return None
        match column:
            case Column.NOT_SENT:
                return Way.RESEND
            case Column.PAST:
                return self.past
            case Column.TOLD_500:
                return self.told_500 or self.within
            case Column.CHANGED if point is STORE_LOST:
                return self.lost_store
            case _ if point is HELD_500_ACTED and self.told_500:
                return Way.RESEND_ASK  # the stored 500 comes back, and says that the key is spent
            case _:
                return self.within


NOTHING_RELIED_ON = "its window is not known, so nothing of it is relied on"
NO_TOKEN_BACK = "a lookup could tell that the refresh landed, but not give the new token back"
FOR_EVER = "what guards it does not end by time, so a repeat stays harmless"
W = Way
ROWS = (
    Row(receiver="stripe.v1", within=W.RESEND, past=W.ASK_PARK, told_500=W.ASK_PARK, lost_store=W.PARK),
    Row(receiver="zendesk.tickets", more=True, within=W.RESEND, past=W.ASK_SEND, lost_store=W.PARK),
    Row(receiver="aws.dynamodb.transact_write", more=True, within=W.RESEND, past=W.ASK_SEND),
    Row(receiver="moov.transfers", within=W.RESEND_FETCH, past=W.RESEND_FETCH, lost_store=W.REFUSED),
    Row(receiver="gocardless.creates", more=True, within=W.ASK_PARK, past=W.ASK_PARK, why=NOTHING_RELIED_ON),
    Row(receiver="brevo.email", within=W.RESEND_ASK, past=W.ASK_PARK),
    Row(receiver="kubernetes.create", within=W.RESEND_ASK, past=W.RESEND_ASK, lost_store=W.REFUSED, why=FOR_EVER),
    Row(receiver="google.calendar", more=True, within=W.ASK_SEND, past=W.ASK_SEND, lost_store=W.REFUSED),
    Row(receiver="salesforce.upsert", within=W.RESEND, past=W.RESEND, why=FOR_EVER),
    Row(receiver="aws.s3.conditional_put", within=W.RESEND_ASK, past=W.RESEND_ASK, lost_store=W.REFUSED),
    Row(receiver="redis.set_nx", more=True, within=W.ASK_PARK, past=W.ASK_PARK, why=NOTHING_RELIED_ON),
    Row(receiver="pagerduty.events_v2", within=W.ASK_PARK, past=W.ASK_PARK, why=NOTHING_RELIED_ON),
    Row(receiver="mailgrid_style.hash_dedup", within=W.RESEND, past=W.PARK),
    Row(receiver="aws.sqs.fifo", more=True, within=W.PARK, past=W.PARK, why="five minutes do not survive a restart"),
    Row(
        receiver="nats.jetstream",
        more=True,
        within=W.ASK_SEND,
        past=W.ASK_SEND,
        why="two minutes do not survive a restart",
    ),
    Row(receiver="braintree.transaction", within=W.ASK_PARK, past=W.ASK_PARK),
    Row(receiver="gmail.send", within=W.RESEND_ASK, past=W.RESEND_ASK, why="a draft can be committed once, for ever"),
    Row(receiver="rabbitmq.stream", within=W.ASK_PARK, past=W.ASK_PARK),
    Row(receiver="kafka.idempotent_producer", within=W.ASK_PARK, past=W.ASK_PARK),
    Row(receiver="github.issues_comments", within=W.ASK_PARK, past=W.ASK_PARK),
    Row(receiver="notion.pages", more=True, within=W.ASK_SEND, past=W.ASK_SEND),
    Row(receiver="vonage.messages", more=True, within=W.ASK_PARK, past=W.ASK_PARK),
    Row(receiver="whatsapp.cloud_api", within=W.PARK, past=W.PARK),
    Row(receiver="smtp", within=W.PARK, past=W.PARK),
    Row(receiver="aws.sqs.standard", more=True, within=W.PARK, past=W.PARK),
    Row(receiver="google.sheets", within=W.ASK_SEND, past=W.ASK_SEND),
    Row(receiver="oauth.xero", within=W.RESEND, past=W.PARK, can_ask=False),
    Row(receiver="oauth.github_app", more=True, within=W.PARK, past=W.PARK, can_ask=False, why=NO_TOKEN_BACK),
    Row(receiver="oauth.microsoft", within=W.RESEND, past=W.RESEND, can_ask=False, why=FOR_EVER),
    Row(receiver="oauth.google", within=W.RESEND, past=W.RESEND, can_ask=False, why=FOR_EVER),
)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing to perform."""

    row: Row
    column: Column
    point: Point

    @property
    def id(self) -> str:
        """For pytest."""
        return f"{self.row.receiver}-{self.column}-{self.point.name}".replace(" ", "_").replace(",", "")

    @property
    def way(self) -> Way:
        """What is expected."""
        way = self.row.way(self.column, self.point)
        assert way is not None
        return way


CELLS = [
    Cell(row=row, column=column, point=point)
    for row in ROWS
    for column, points in POINTS.items()
    for point in points
    if row.way(column, point) is not None
]


def is_parked(cell: Cell) -> bool:
    """Whether a person has to tell, by the table."""
    if cell.point is BOTH_LIVE or cell.way is Way.REFUSED:
        return False
    return cell.way is Way.PARK or (cell.way is Way.ASK_PARK and not cell.point.acts)
