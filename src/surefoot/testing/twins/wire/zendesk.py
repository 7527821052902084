"""Zendesk's ticket API: JSON in and out; `x-idempotency-lookup` says whether a key was known.

Facts: https://developer.zendesk.com/api-reference/ticketing/introduction/#idempotency. A list by `external_id` reads
the store; the search reads an index that lags behind by minutes.
"""

from __future__ import annotations

import re

from ..behaviour import SUCCESSES, Behaviour, Said, Sort
from ..messages import Answer, Call, Json, Page, Question, Request, Thing
from .shape import RETRY_AFTER_SECONDS, Listing, iso, json_of, json_page, object_of, part_of, whole_number

TICKETS = "tickets"

BEHAVIOUR = Behaviour(
    name="zendesk.tickets",
    operations={TICKETS: Sort.KEY_REPLAY},
    window_seconds=7200,
    lag_seconds=60,
    compares_payload=True,
    codes={
        Said.IN_FLIGHT: (409, "IdempotentRequestInProgress"),
        Said.CHANGED_PAYLOAD: (400, "IdempotentRequestError"),
        Said.NOT_PROCESSED: (503, "ServiceUnavailable"),
        Said.REFUSED: (422, "RecordInvalid"),
        Said.ERROR: (500, "InternalError"),
        Said.MALFORMED: (400, "InvalidIdempotencyKey"),
        Said.UNKNOWN: (404, "InvalidEndpoint"),
    },
)


class Wire:
    """The shape of {subdomain}.zendesk.com."""

    behaviour = BEHAVIOUR

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """POST makes a ticket; GET lists by external id, or searches."""
        match call.method, call.path.removesuffix(".json").strip("/").split("/")[2:]:
            case "POST", ["tickets"]:
                ticket = object_of(json_of(call.body).get("ticket"))
                key, marker = call.headers.get("idempotency-key", ""), str(ticket.get("external_id") or "")
                return Request(operation=TICKETS, payload=ticket, key=key, marker=marker)
            case "GET", ["tickets"]:
                after = whole_number(call.query.get("page[after]"), 0)
                limit = whole_number(call.query.get("page[size]"), 100)
                mark = call.query.get("external_id", "")
                return Listing(operation=TICKETS, value=mark, skip=after, limit=limit, lag_seconds=0.0, how="tickets")
            case "GET", ["search"]:
                asked = re.search(r"external_id[:=]\"?([^\s\"]+)", call.query.get("query", ""))
                return Listing(operation=TICKETS, value=asked[1] if asked else "", how="results")
            case _:
                return _error(*behaviour.code(Said.UNKNOWN), f"there is no {call.method} {call.path}")

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """A ticket with its audit, a list, or an error."""
        if isinstance(asked, Listing) and answer.said is Said.SHOWN:
            things, left = part_of(answer.found, asked, newest_first=False)
            rows = [_ticket(thing) for thing in things]
            if asked.how == "results":
                return json_page(200, {"results": rows, "count": len(rows) + left, "next_page": None})
            after = str(asked.skip + len(rows)) if left else None
            return json_page(200, {"tickets": rows, "meta": {"has_more": left > 0, "after_cursor": after}, "links": {}})
        if answer.said in SUCCESSES and answer.thing is not None and isinstance(asked, Request):
            hit = {"X-Idempotency-Lookup": "hit" if answer.said is Said.REPLAYED else "miss"} if asked.key else {}
            ticket = _ticket(answer.thing)
            audit: Json = {"id": 900_000 + answer.thing.number, "ticket_id": ticket["id"], "events": []}
            return json_page(201, {"ticket": ticket, "audit": audit}, hit)
        status, code = behaviour.code(answer.said)
        return _error(answer.status or status, "TooManyRequests" if answer.status else code, answer.text)


def _error(status: int, code: str, text: str) -> Page:
    later = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 429 else {}
    return json_page(status, {"error": code, "description": text}, later)


def _ticket(thing: Thing) -> Json:
    made = thing.request.payload
    return {
        "id": 35_000 + thing.number,
        "external_id": made.get("external_id"),
        "subject": made.get("subject"),
        "description": made.get("description") or object_of(made.get("comment")).get("body"),
        "status": "new",
        "created_at": iso(thing.made_at),
        "updated_at": iso(thing.made_at),
        "result_type": "ticket",
    }
