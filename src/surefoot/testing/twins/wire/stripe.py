"""Stripe's API v1: forms in, objects and lists out; a repeat is told by a header, a misused key by the error's type.

Facts: https://docs.stripe.com/api/idempotent_requests and https://docs.stripe.com/api/errors. One error type,
`idempotency_error`, stands for two answers: another request under the key (400), and a first one that still runs (409,
told apart by its code alone).
"""

from __future__ import annotations

import re

from ..behaviour import Behaviour, Said, Sort
from ..messages import Answer, Call, Json, Page, Question, Request, Thing
from .shape import Listing, form_of, json_page, part_of, whole_number

KINDS = {"charges": "ch", "payment_intents": "pi", "refunds": "re"}

BEHAVIOUR = Behaviour(
    name="stripe.v1",
    operations=dict.fromkeys(KINDS, Sort.KEY_REPLAY),
    window_seconds=86400,
    compares_payload=True,
    stores_refusals=True,
    stores_errors=True,
    codes={
        Said.MADE: (200, ""),
        Said.REPLAYED: (200, ""),
        Said.IN_FLIGHT: (409, "idempotency_key_in_use"),
        Said.CHANGED_PAYLOAD: (400, ""),
        Said.NOT_PROCESSED: (429, "lock_timeout"),
        Said.REFUSED: (402, "card_declined"),
        Said.ERROR: (500, ""),
        Said.STORED_ERROR: (500, ""),
        Said.MALFORMED: (400, ""),
        Said.UNKNOWN: (404, ""),
    },
)
TYPES = {
    Said.IN_FLIGHT: "idempotency_error",
    Said.CHANGED_PAYLOAD: "idempotency_error",
    Said.REFUSED: "card_error",
    Said.ERROR: "api_error",
    Said.STORED_ERROR: "api_error",
}
REPLAYED = {"Idempotent-Replayed": "true"}


class Wire:
    """The shape of api.stripe.com."""

    behaviour = BEHAVIOUR

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """POST makes, GET lists or shows one."""
        match call.method, call.path.strip("/").split("/"):
            case "POST", ["v1", kind]:
                key, scope = call.headers.get("idempotency-key", ""), call.headers.get("stripe-account", "")
                return Request(operation=kind, payload=form_of(call.body), key=key, marker=kind, scope=scope)
            case "GET", ["v1", kind] if kind in KINDS:
                since = whole_number(call.query.get("created[gte]"), 0)
                after = call.query.get("starting_after", "")
                limit = min(whole_number(call.query.get("limit"), 10), 100)
                return Listing(operation=kind, value=kind, since=since, limit=limit, how=after)
            case "GET", ["v1", kind, id] if kind in KINDS:
                return Question(operation=kind, value=f"{kind}_{_number(id)}")
            case _:
                return self._error(Said.UNKNOWN, f"Unrecognized request URL ({call.method}: {call.path}).", behaviour)

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """An object, a list, or an error object."""
        replayed = REPLAYED if answer.replayed else {}
        if isinstance(asked, Listing) and answer.said is Said.SHOWN:
            return self._list(answer, asked)
        if answer.said is Said.SHOWN:
            missing = json_page(404, {"error": {"type": "invalid_request_error", "code": "resource_missing"}})
            return json_page(200, _object(answer.found[0])) if answer.found else missing
        if answer.thing is not None and answer.said in (Said.MADE, Said.REPLAYED):
            return json_page(behaviour.code(answer.said)[0], _object(answer.thing), replayed)
        return self._error(answer.said, answer.text, behaviour, replayed, answer.status)

    def _list(self, answer: Answer, asked: Listing) -> Page:
        found = [t for t in answer.found if not asked.how or t.number < _number(asked.how)]
        things, left = part_of(found, asked)
        url = f"/v1/{asked.operation}"
        return json_page(
            200, {"object": "list", "url": url, "has_more": left > 0, "data": [_object(t) for t in things]}
        )

    def _error(
        self, said: Said, text: str, behaviour: Behaviour, headers: dict[str, str] | None = None, status: int = 0
    ) -> Page:
        own, code = behaviour.code(said)
        code = "rate_limit" if status == 429 else code
        error: Json = {"type": TYPES.get(said, "invalid_request_error"), "message": text}
        if status == 429:
            error["type"] = "invalid_request_error"
        return json_page(status or own, {"error": error | ({"code": code} if code else {})}, headers)


def _number(id: str) -> int:
    """The number in an id of ours; 0 for another, which finds nothing."""
    digits = id.rpartition("_")[2]
    return int(digits, 16) if re.fullmatch(r"[0-9a-f]+", digits) else 0


def _object(thing: Thing) -> Json:
    kind = thing.request.operation
    fields: Json = dict(thing.request.payload)
    for name in ("amount", "application_fee_amount"):
        if name in fields:
            fields[name] = whole_number(fields[name], 0)
    return {
        "id": f"{KINDS[kind]}_{thing.number:024x}",
        "object": kind.removesuffix("s"),
        "created": int(thing.made_at),
        "livemode": False,
        "metadata": {},
        "status": "requires_payment_method" if kind == "payment_intents" else "succeeded",
        **fields,
    }
