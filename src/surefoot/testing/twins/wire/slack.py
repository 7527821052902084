"""Slack's Web API: errors come as `"ok": false` inside a 200, also those after which something may have happened.

Facts: https://docs.slack.dev/reference/methods/chat.postMessage. `internal_error` and `fatal_error` say of themselves
that a part of the operation may have succeeded. A message's `ts` is whole seconds and a sequence number, so `oldest`
with a fraction can leave out a message of that very second.
"""

from __future__ import annotations

from dataclasses import replace

from ..behaviour import Behaviour, Said, Sort
from ..messages import Answer, Call, Json, Page, Question, Request, Thing
from .shape import RETRY_AFTER_SECONDS, Listing, form_of, json_of, json_page, number, part_of, whole_number

POST = "chat.postMessage"

BEHAVIOUR = Behaviour(
    name="slack.chat_post_message",
    operations={POST: Sort.LOOKUP_ONLY},
    codes={
        Said.MADE: (200, ""),
        Said.NOT_PROCESSED: (200, "service_unavailable"),
        Said.REFUSED: (200, "channel_not_found"),
        Said.ERROR: (200, "internal_error"),
        Said.UNKNOWN: (200, "unknown_method"),
    },
)


class Wire:
    """The shape of slack.com/api."""

    behaviour = BEHAVIOUR

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """Every method is a POST (reading ones also a GET), as JSON or as a form."""
        fields: Json = json_of(call.body) if "json" in call.headers.get("content-type", "") else form_of(call.body)
        fields = {**call.query, **fields}
        match call.path.rpartition("/")[2]:
            case "chat.postMessage":
                if isinstance(fields.get("metadata"), str):
                    fields["metadata"] = json_of(fields["metadata"].encode())
                return Request(operation=POST, payload=fields, marker=str(fields.get("channel", "")))
            case "conversations.history":
                shown = str(fields.get("include_all_metadata", "")).lower() in ("1", "true")
                return Listing(
                    operation=POST,
                    value=str(fields.get("channel", "")),
                    since=number(fields.get("oldest")),
                    skip=whole_number(str(fields.get("cursor", "")).removeprefix("after:"), 0),
                    limit=whole_number(fields.get("limit"), 100),
                    how="metadata" if shown else "",
                )
            case _:
                return json_page(200, {"ok": False, "error": behaviour.code(Said.UNKNOWN)[1]})

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """`ok` with what was asked for, or an error inside a 200; a 429 says when to come back."""
        if isinstance(asked, Listing) and answer.said is Said.SHOWN:
            # `oldest` is compared with the ts, whose fraction says nothing of the time
            found = [thing for thing in answer.found if float(_ts(thing)) > asked.since]
            things, left = part_of(found, replace(asked, since=0.0))
            cursor = f"after:{asked.skip + len(things)}" if left else ""
            rows = [_message(thing, metadata=bool(asked.how)) for thing in things]
            more = {"has_more": left > 0, "response_metadata": {"next_cursor": cursor}}
            return json_page(200, {"ok": True, "messages": rows, **more})
        if answer.said is Said.MADE and answer.thing is not None:
            thing = answer.thing
            message = _message(thing, metadata=True)
            return json_page(200, {"ok": True, "channel": thing.request.marker, "ts": _ts(thing), "message": message})
        if answer.status == 429:
            later = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            return json_page(429, {"ok": False, "error": "ratelimited"}, later)
        status, code = behaviour.code(answer.said)
        return json_page(status, {"ok": False, "error": code})


def _ts(thing: Thing) -> str:
    return f"{int(thing.made_at)}.{thing.number:06d}"


def _message(thing: Thing, *, metadata: bool) -> Json:
    made = thing.request.payload
    message: Json = {"type": "message", "user": "U0AGENT", "text": made.get("text", ""), "ts": _ts(thing)}
    return message | ({"metadata": made["metadata"]} if metadata and "metadata" in made else {})
