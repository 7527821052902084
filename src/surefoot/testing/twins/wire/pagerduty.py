"""PagerDuty's Events API v2: 202 means queued, and a `dedup_key` protects while its incident is open.

Facts: https://developer.pagerduty.com/docs/send-alert-event and the REST API's `GET /incidents`. After a resolve the
same key opens another incident and pages people again, so a lookup has to see resolved ones too.
"""

from __future__ import annotations

from ..behaviour import SUCCESSES, Behaviour, Said, Sort
from ..messages import Answer, Call, Json, Page, Question, Request, Thing
from .shape import Listing, iso, json_of, json_page, object_of, part_of, whole_number

TRIGGER, RESOLVE = "trigger", "resolve"

BEHAVIOUR = Behaviour(
    name="pagerduty.events_v2",
    operations={TRIGGER: Sort.STATE_KEY},
    codes={
        Said.MADE: (202, ""),
        Said.REPLAYED: (202, ""),
        Said.NOT_PROCESSED: (429, "throttle exceeded"),
        Said.REFUSED: (400, "invalid event"),
        Said.ERROR: (500, "internal error"),
        Said.UNKNOWN: (404, "not found"),
    },
)


class Wire:
    """The shape of events.pagerduty.com, and of api.pagerduty.com as far as incidents are listed."""

    behaviour = BEHAVIOUR

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """POST queues an event; GET lists incidents by their key."""
        match call.method, call.path:
            case "POST", "/v2/enqueue":
                return self._event(json_of(call.body), behaviour)
            case "GET", "/incidents":
                return Listing(
                    operation=TRIGGER,
                    value=call.query.get("incident_key", ""),
                    skip=whole_number(call.query.get("offset"), 0),
                    limit=whole_number(call.query.get("limit"), 25),
                    closed=True,
                )
            case _:
                status, message = behaviour.code(Said.UNKNOWN)
                return json_page(status, {"error": {"code": 2100, "message": message}})

    def _event(self, event: Json, behaviour: Behaviour) -> Request | Page:
        action, key = str(event.get("event_action")), str(event.get("dedup_key") or "")
        scope = str(event.get("routing_key", ""))
        payload = {name: value for name, value in event.items() if name not in ("dedup_key", "routing_key")}
        if action == RESOLVE and key:
            return Request(operation=TRIGGER, payload=payload, closes=key, scope=scope)
        if action != TRIGGER:
            return _refused(400, "invalid event", f"this twin queues trigger and resolve, found {action!r}")
        return Request(operation=TRIGGER, payload=payload, key=key, scope=scope)

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """Queued, incidents, or an error; a repeat looks like a first event."""
        if isinstance(asked, Listing) and answer.said is Said.SHOWN:
            things, left = part_of(answer.found, asked, newest_first=False)
            more = {"limit": asked.limit, "offset": asked.skip, "more": left > 0, "total": None}
            return json_page(200, {"incidents": [_incident(thing) for thing in things], **more})
        if answer.said in SUCCESSES and answer.thing is not None:
            key = answer.thing.request.key or answer.thing.id
            return json_page(202, {"status": "success", "message": "Event processed", "dedup_key": key})
        status, text = behaviour.code(answer.said)
        return _refused(answer.status or status, text, answer.text)


def _refused(status: int, text: str, why: str) -> Page:
    return json_page(status, {"status": text, "message": why, "errors": [why]})


def _incident(thing: Thing) -> Json:
    event = object_of(thing.request.payload.get("payload"))
    return {
        "id": f"Q{thing.number:013X}",
        "type": "incident",
        "incident_number": thing.number,
        "incident_key": thing.request.key,
        "title": event.get("summary", ""),
        "status": "triggered" if thing.open else "resolved",
        "created_at": iso(thing.made_at),
    }
