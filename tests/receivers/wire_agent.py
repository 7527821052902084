"""The agent of the wire tests: one effect for each of eight services, written with the service's own client package.

Each job runs in a forked process that may be killed. What it says goes into a pipe that a SIGKILL cannot take back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import github
import httpcore  # noqa: F401
import httpcore2  # noqa: F401
import msgspec
import stripe
from botocore.exceptions import ClientError
from sendgrid.helpers.mail import CustomArg, Mail
from zenpy.lib.api_objects import Ticket

from surefoot import Attempt, Exists, NotSent, Refused, RunWaiting, Several, Surefoot, effect, receivers, workflow
from surefoot.stores.sqlite import store  # noqa: F401
from surefoot.testing.twins import SharedClock
from tests.receivers import wire_clients as clients

Receipt = dict[str, str]
ROUTE = {"channel": "C1", "repository": "acme/app", "bucket": "reports", "to": "+15550001", "from": "+15550000"}
NOWHERE = "http://127.0.0.1"
EARLIER_SECONDS = 60.0
"""How long before the intent a list begins: services round their times, and clocks differ."""


class Job(msgspec.Struct, kw_only=True):
    """What one life is told. `careless`: clients keep their own retries, as their packages come."""

    service: str
    url: str
    db: str = ""
    clock: str = ""
    abouts: tuple[str, ...] = ("A-7",)
    run: str = "r1"
    jumps: bool = True
    timeout: float = 20.0
    careless: bool = False


JOB = [Job(service="", url="")]


def url() -> str:
    return JOB[0].url


def options(attempt: Attempt, library: str) -> dict[str, Any]:
    return {} if JOB[0].careless else attempt.options(library)


def asked_from(attempt: Attempt) -> float:
    """Since when a list has to be read: from a while before the intent was written."""
    assert attempt.record is not None
    return attempt.record.created_at - EARLIER_SECONDS


def only(found: list[Receipt]) -> Receipt | None:
    """The one receipt that was found; several are for a person."""
    if len(found) > 1:
        raise Several(f"{len(found)} could be ours: {found}")
    return found[0] if found else None


# --- the effects ------------------------------------------------------------------------------------------------------


@effect(receivers.get("stripe.v1"), identity="stripe:{about}")
def refund(attempt: Attempt, about: str) -> Receipt:
    client = clients.stripe_client(url(), **options(attempt, "stripe"))
    fields: Any = {"charge": f"ch_{about}", "amount": 40, "metadata": {"intent": attempt.key}}
    return {"id": client.v1.refunds.create(fields, {"idempotency_key": attempt.key}).id}


@refund.lookup
def find_refund(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.stripe_client(url(), **attempt.options("stripe"))
    listed = client.v1.refunds.list({"created": {"gte": int(asked_from(attempt))}, "limit": 100})
    ours = [made for made in listed.auto_paging_iter() if made.to_dict()["metadata"].get("intent") == attempt.key]
    return only([{"id": made.id} for made in ours])


@effect(receivers.get("zendesk.tickets"), identity="zendesk:{about}")
def open_ticket(attempt: Attempt, about: str) -> Receipt:
    client = clients.zendesk_client(url(), session=attempt.session(), timeout=attempt.timeout, ratelimit_budget=1)
    made = client.tickets.create(Ticket(subject=about, description="It broke.", external_id=attempt.key))
    return {"id": str(made.ticket.id)}


@open_ticket.lookup
def find_ticket(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.zendesk_client(url(), session=attempt.session(), timeout=attempt.timeout)
    return only([{"id": str(ticket.id)} for ticket in client.tickets(external_id=attempt.key)])


@effect(receivers.get("github.issues_comments"), identity="github:{about}")
def open_issue(attempt: Attempt, about: str) -> Receipt:
    client = clients.github_client(url(), **options(attempt, "github"))
    body = f"It broke.\n<!-- intent {attempt.key} -->"
    try:
        number = client.get_repo(ROUTE["repository"]).create_issue(about, body=body).number
    except github.RateLimitExceededException as limited:  # a 403, but of another kind than a missing right
        raise NotSent("turned away by the rate limit") from limited
    return {"id": f"{number:d}"}  # None, where an answer was not GitHub's, is no receipt


@open_issue.lookup
def find_issue(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.github_client(url(), **attempt.options("github"))
    since = datetime.fromtimestamp(asked_from(attempt), UTC)
    listed = client.get_repo(ROUTE["repository"]).get_issues(state="all", since=since)
    return only([{"id": str(issue.number)} for issue in listed if attempt.key in (issue.body or "")])


@effect(receivers.get("slack.chat_post_message"), identity="slack:{about}")
def post_message(attempt: Attempt, about: str) -> Receipt:
    client = clients.slack_client(url(), **options(attempt, "slack_sdk"))
    mark: Any = {"event_type": "intent", "event_payload": {"key": attempt.key}}
    return {"id": client.chat_postMessage(channel=ROUTE["channel"], text=about, metadata=mark)["ts"]}


@post_message.lookup
def find_message(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.slack_client(url(), **attempt.options("slack_sdk"))
    oldest = str(int(asked_from(attempt)))
    pages = client.conversations_history(channel=ROUTE["channel"], oldest=oldest, include_all_metadata=True)
    messages = [message for page in pages for message in page["messages"]]
    mark = {"key": attempt.key}
    return only([{"id": m["ts"]} for m in messages if m.get("metadata", {}).get("event_payload") == mark])


@effect(receivers.get("sendgrid.mail_send"), identity="sendgrid:{about}")
def send_mail(attempt: Attempt, about: str) -> Receipt:
    client = clients.sendgrid_client(url(), timeout=attempt.timeout)
    mail = Mail("agent@acme.test", "ann@customer.test", about, plain_text_content="Done.")
    mail.add_custom_arg(CustomArg("intent", attempt.key))
    answer = client.send(mail)
    if answer.status_code != 202:  # the package returns whatever it got, also a proxy's page
        raise ValueError(f"mail/send answers 202, found {answer.status_code}")
    return {"id": answer.headers["X-Message-Id"]}


@send_mail.lookup
def find_mail(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.sendgrid_client(url(), timeout=attempt.timeout)
    asked = {"query": f"unique_args['intent']=\"{attempt.key}\"", "limit": 10}
    rows = client.client.messages.get(query_params=asked).to_dict["messages"]
    return only([{"id": row["msg_id"].split(".")[0]} for row in rows])


@effect(receivers.get("pagerduty.events_v2"), identity="pagerduty:{about}")
def page_someone(attempt: Attempt, about: str) -> Receipt:
    client = clients.pagerduty_events(url())
    client.timeout = attempt.timeout
    if JOB[0].careless:
        client.sleep_timer = 0.001
    else:
        client.max_network_attempts = 0
        client.retry = {429: -2}  # its default for 429 is for ever, and any negative number but -1 means never
    return {"id": client.trigger(about, "db1", dedup_key=attempt.key)}


@page_someone.lookup
def find_incident(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.pagerduty_rest(url())
    asked = {"incident_key": attempt.key, "date_range": "all"}
    return only([{"id": incident["incident_key"]} for incident in client.iter_all("incidents", params=asked)])


@effect(receivers.get("twilio.messages"), identity="twilio:{about}")
def send_text(attempt: Attempt, about: str) -> Receipt:
    client = clients.twilio_client(url(), **options(attempt, "twilio"))
    made = client.messages.create(to=ROUTE["to"], from_=ROUTE["from"], body=f"Order {about} has left.")
    return {"id": str(made.sid)}


@send_text.lookup
def find_text(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.twilio_client(url(), **attempt.options("twilio"))
    since = datetime.fromtimestamp(asked_from(attempt), UTC)
    listed = client.messages.list(to=ROUTE["to"], from_=ROUTE["from"], date_sent_after=since)
    return only([{"id": str(text.sid)} for text in listed if text.body == f"Order {about} has left."])


@effect(receivers.get("aws.s3.conditional_put"), identity="s3:{about}")
def put_report(attempt: Attempt, about: str) -> Receipt:
    client, name = clients.s3_client(url(), **options(attempt, "boto3")), f"{about}.txt"
    owner = {"owner": attempt.key}
    try:
        made = client.put_object(Bucket=ROUTE["bucket"], Key=name, Body=b"report", IfNoneMatch="*", Metadata=owner)
        return {"id": made["ETag"]}
    except ClientError as error:
        if error.response["Error"]["Code"] == "PreconditionFailed" and (ours := find_report(attempt, about)):
            raise Exists(ours) from error
        raise


@put_report.lookup
def find_report(attempt: Attempt, about: str) -> Receipt | None:
    client = clients.s3_client(url(), **attempt.options("boto3"))
    try:
        head = client.head_object(Bucket=ROUTE["bucket"], Key=f"{about}.txt")
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return None
        raise
    return {"id": head["ETag"]} if head["Metadata"].get("owner") == attempt.key else None


EFFECTS: dict[str, Any] = {
    "stripe": refund,
    "zendesk": open_ticket,
    "github": open_issue,
    "slack": post_message,
    "sendgrid": send_mail,
    "pagerduty": page_someone,
    "twilio": send_text,
    "s3": put_report,
}


# What packages import or read when they are first used is paid here once, and not again after each fork.
clients.s3_client(NOWHERE)
clients.pagerduty_events(NOWHERE)
READY = (
    clients.stripe_client(NOWHERE).v1.refunds,
    clients.twilio_client(NOWHERE).messages,
    stripe.Refund,
    stripe.ListObject,
)


@workflow
def act(service: str, about: str) -> Receipt:
    return EFFECTS[service](about)


# --- jobs -------------------------------------------------------------------------------------------------------------


def live(say: Callable[[str], object], told: dict[str, Any]) -> None:
    """One life: it says its receipts, or why a person has to tell."""
    JOB[0] = job = msgspec.convert(told, Job)
    EFFECTS[job.service].timeout_seconds = job.timeout
    with Surefoot(job.db, clock=SharedClock(job.clock, jumps=job.jumps)) as surefoot:
        say("ready")
        for about in job.abouts:
            try:
                say(f"receipt {surefoot.run(act, job.service, about, id=f'{job.run}-{about}')['id']}")
            except Refused as refused:
                say(f"refused {' '.join(refused.reason.split())}")
            except RunWaiting as waiting:
                say(f"parked {' '.join(str(waiting).split())}")


def plain(say: Callable[[str], object], told: dict[str, Any]) -> None:
    """The same call in an agent without Surefoot, which makes a new key when it starts again, as packages do."""
    JOB[0] = job = msgspec.convert(told, Job)
    key, about = str(uuid.uuid4()), job.abouts[0]
    if job.service == "s3":
        made = clients.s3_client(job.url).put_object(Bucket=ROUTE["bucket"], Key=f"{about}.txt", Body=key.encode())
        say(f"receipt {made['ETag']}")
    elif job.careless:
        say(f"receipt {clients.slack_client(job.url).chat_postMessage(channel=ROUTE['channel'], text=about)['ts']}")
    else:
        attempt = Attempt(key=key, timeout=job.timeout, deadline=0.0, number=1, identity=about, effect="")
        say(f"receipt {EFFECTS[job.service].function(attempt, about)['id']}")
