"""Twilio's Messages: forms in, JSON out, no key and no field for a reference; a list by recipient and day.

Facts: https://www.twilio.com/docs/messaging/api/message-resource. The date filters work on whole days, so a list shows
texts that were sent hours before the intent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import urlencode

from ..behaviour import Behaviour, Said, Sort
from ..messages import Answer, Call, Json, Page, Question, Request, Thing
from .shape import Listing, form_of, json_page, part_of, seconds_of, whole_number

MESSAGES = "messages"

BEHAVIOUR = Behaviour(
    name="twilio.messages",
    operations={MESSAGES: Sort.LOOKUP_ONLY},
    codes={
        Said.NOT_PROCESSED: (503, "20503"),
        Said.REFUSED: (400, "21211"),
        Said.ERROR: (500, "20500"),
        Said.UNKNOWN: (404, "20404"),
    },
)


class Wire:
    """The shape of api.twilio.com."""

    behaviour = BEHAVIOUR

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """POST sends a text; GET lists by recipient, sender and day."""
        match call.method, call.path.strip("/").split("/"):
            case "POST", ["2010-04-01", "Accounts", sid, "Messages.json"]:
                text = form_of(call.body)
                return Request(operation=MESSAGES, payload=text, marker=str(text.get("To", "")), scope=sid)
            case "GET", ["2010-04-01", "Accounts", sid, "Messages.json"]:
                page, limit = whole_number(call.query.get("Page"), 0), whole_number(call.query.get("PageSize"), 50)
                rest = {**call.query, "Page": page + 1, "PageSize": limit}
                return Listing(
                    operation=MESSAGES,
                    value=call.query.get("To", ""),
                    scope=sid,
                    since=seconds_of(call.query.get("DateSent>", "")[:10]),
                    skip=page * limit,
                    limit=limit,
                    how=f"{call.path}?{urlencode(rest)}",
                )
            case _:
                status, code = behaviour.code(Said.UNKNOWN)
                return _error(status, code, f"The requested resource {call.path} was not found")

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """A message, a page of them, or an error with Twilio's own number."""
        if isinstance(asked, Listing) and answer.said is Said.SHOWN:
            things, left = part_of(answer.found, asked)
            rows = [_message(thing) for thing in things]
            number = asked.skip // max(asked.limit, 1)
            where = {"page": number, "page_size": asked.limit, "next_page_uri": asked.how if left else None}
            return json_page(200, {"messages": rows, **where})
        if answer.said is Said.MADE and answer.thing is not None:
            return json_page(201, _message(answer.thing) | {"status": "queued", "date_sent": None})
        status, code = behaviour.code(answer.said)
        return _error(answer.status or status, "20429" if answer.status == 429 else code, answer.text)


def _error(status: int, code: str, text: str) -> Page:
    more = f"https://www.twilio.com/docs/errors/{code}"
    return json_page(status, {"code": int(code), "message": text, "more_info": more, "status": status})


def _message(thing: Thing) -> Json:
    made, sid = thing.request.payload, f"SM{thing.number:032x}"
    at = format_datetime(datetime.fromtimestamp(thing.made_at, UTC))
    return {
        "sid": sid,
        "account_sid": thing.request.scope,
        "to": made.get("To"),
        "from": made.get("From"),
        "body": made.get("Body"),
        "status": "sent",
        "direction": "outbound-api",
        "date_created": at,
        "date_sent": at,
        "date_updated": at,
        "error_code": None,
        "error_message": None,
        "num_segments": "1",
        "num_media": "0",
        "uri": f"/2010-04-01/Accounts/{thing.request.scope}/Messages/{sid}.json",
    }
