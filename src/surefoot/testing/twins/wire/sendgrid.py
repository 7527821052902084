"""SendGrid's v3 mail/send: 202 with another `X-Message-Id` each time; the Email Activity feed shows it later.

Facts: https://www.twilio.com/docs/sendgrid/api-reference (mail-send, email-activity). The feed is asked by custom
argument, and its `msg_id` begins with the `X-Message-Id` of the request.
"""

from __future__ import annotations

import re

from ..behaviour import Behaviour, Said, Sort
from ..messages import Answer, Call, Json, Page, Question, Request, Thing
from .shape import RETRY_AFTER_SECONDS, Listing, first_of, iso, json_of, json_page, object_of, part_of, whole_number

MAIL = "mail/send"
ASKED = re.compile(r"unique_args\[\s*['\"]?[^'\"\]]+['\"]?\s*\]\s*=\s*\"([^\"]*)\"")

BEHAVIOUR = Behaviour(
    name="sendgrid.mail_send",
    operations={MAIL: Sort.LOOKUP_ONLY},
    lag_seconds=5,
    codes={
        Said.MADE: (202, ""),
        Said.NOT_PROCESSED: (503, "service unavailable"),
        Said.REFUSED: (400, "The from address does not match a verified Sender Identity."),
        Said.ERROR: (500, "internal error"),
        Said.UNKNOWN: (404, "not found"),
    },
)


class Wire:
    """The shape of api.sendgrid.com."""

    behaviour = BEHAVIOUR

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """POST sends; GET asks the activity feed."""
        match call.method, call.path:
            case "POST", "/v3/mail/send":
                mail = json_of(call.body)
                marks = object_of(mail.get("custom_args"))
                return Request(operation=MAIL, payload=mail, marker=str(next(iter(marks.values()), "")))
            case "GET", "/v3/messages":
                asked = ASKED.search(call.query.get("query", ""))
                if asked is None:
                    return _error(400, "query must be like unique_args['name']=\"value\"")
                return Listing(operation=MAIL, value=asked[1], limit=whole_number(call.query.get("limit"), 10))
            case _:
                return _error(*behaviour.code(Said.UNKNOWN))

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """No body and a message id, the feed's rows, or errors."""
        if isinstance(asked, Listing) and answer.said is Said.SHOWN:
            return json_page(200, {"messages": [_row(thing) for thing in part_of(answer.found, asked)[0]]})
        if answer.said is Said.MADE and answer.thing is not None:
            return Page(status=202, headers={"X-Message-Id": message_id(answer.thing)})
        status, message = behaviour.code(answer.said)
        return _error(answer.status or status, "too many requests" if answer.status else message)


def _error(status: int, message: str) -> Page:
    later = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 429 else {}
    return json_page(status, {"errors": [{"message": message, "field": None, "help": None}]}, later)


def message_id(thing: Thing) -> str:
    """The `X-Message-Id` of a request."""
    return f"mail{thing.number:018d}"


def _row(thing: Thing) -> Json:
    mail = thing.request.payload
    first = first_of(mail.get("personalizations"))
    to = str(first_of(first.get("to")).get("email", ""))
    return {
        "from_email": object_of(mail.get("from")).get("email", ""),
        "msg_id": f"{message_id(thing)}.recvd-6d5c-0",
        "subject": first.get("subject") or mail.get("subject"),
        "to_email": to,
        "status": "delivered",
        "opens_count": 0,
        "clicks_count": 0,
        "last_event_time": iso(thing.made_at),
    }
