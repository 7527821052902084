"""The wire that fits every receiver: JSON, with the key where this receiver wants it.

    POST /{operation}          {"...": "..."}   acts; key in its header, field or parameter, or as /{operation}/{key}
    GET  /{operation}/{value}                  what was made under this key, marker, id or name: {"found": [...]}

`?closed=1` shows also what is closed, deleted or resolved.

A body may name itself for the ledger (`name`) and carry what a lookup finds it by (`marker`). An error is
`{"error": {"code", "message", "made"}}`, with the receiver's own status and code.
"""

from __future__ import annotations

import json
from typing import Any, cast

from ...core.contract import Place
from .behaviour import SUCCESSES, Behaviour, Said
from .messages import Answer, Call, Json, Page, Question, Request, Thing

SESSION, ACCOUNT = "x-session", "x-account"


def page(status: int, body: Json, headers: dict[str, str] | None = None) -> Page:
    """A JSON page."""
    typed = {"Content-Type": "application/json", **(headers or {})}
    return Page(status=status, body=json.dumps(body).encode(), headers=typed)


def failure(behaviour: Behaviour, said: Said, text: str, *, status: int = 0, made: str = "") -> Page:
    """An error page in the receiver's own status and code."""
    usual, code = behaviour.code(said)
    error = {"code": code, "message": text} | ({"made": made} if made else {})
    return page(status or usual, {"error": error})


def shown(thing: Thing) -> Json:
    """A thing as its receiver shows it."""
    return {"id": thing.id, "number": thing.number, **thing.request.payload, **thing.facts}


class PlainWire:
    """See the module."""

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """A request for POST, PUT and PATCH, a question for GET."""
        operation, _, rest = call.path.strip("/").partition("/")
        if call.method == "GET":
            if not rest:
                return failure(
                    behaviour, Said.UNKNOWN, f"{behaviour.name}: ask by GET /{operation or 'operation'}/VALUE"
                )
            closed = call.query.get("closed", "") in ("1", "true")
            return Question(operation=operation, value=rest, scope=call.headers.get(ACCOUNT, ""), closed=closed)
        if call.method not in ("POST", "PUT", "PATCH"):
            return failure(
                behaviour, Said.UNKNOWN, f"{behaviour.name} takes POST, PUT, PATCH and GET, not {call.method}"
            )
        try:
            body = json.loads(call.body or b"{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return failure(behaviour, Said.MALFORMED, f"{behaviour.name}, {operation}: the body must be a JSON object")
        payload = cast("Json", body)
        key = self._take_key(call, behaviour, payload, rest)
        if behaviour.quoted and key:
            if not (len(key) > 2 and key[0] == key[-1] == '"'):
                text = f"{behaviour.name}, {operation}: {behaviour.key_name} must stand in double quotes, found {key}"
                return failure(behaviour, Said.MALFORMED, text)
            key = key[1:-1]
        return Request(
            operation=operation,
            key=key,
            payload=payload,
            name=_text(payload.get("name")),
            marker=_text(payload.get("marker")),
            scope=call.headers.get(ACCOUNT, ""),
            session=call.headers.get(SESSION, ""),
        )

    def _take_key(self, call: Call, behaviour: Behaviour, payload: Json, rest: str) -> str:
        name = behaviour.key_name
        match behaviour.place:
            case Place.HEADER | Place.MAIL_HEADER:
                return call.headers.get(name.lower(), "")
            case Place.BODY | Place.PROPERTY:
                return _text(payload.pop(name, ""))
            case Place.QUERY:
                return call.query.get(name, "")
            case Place.PATH:
                return rest
            case Place.NONE:
                return ""

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """The thing, what was found, or an error."""
        status, _ = behaviour.code(answer.said)
        if answer.said is Said.SHOWN:
            return page(status, {"found": [shown(thing) for thing in answer.found]})
        marked = answer.replayed and behaviour.replay_marker is not None
        headers = dict([behaviour.replay_marker]) if marked and behaviour.replay_marker else {}
        if answer.said in SUCCESSES:
            body = shown(answer.thing) if answer.thing else {"id": "", "number": 0}
            return page(answer.status or status, body, headers)
        made = answer.thing.id if answer.thing else ""
        wrong = failure(behaviour, answer.said, answer.text, status=answer.status, made=made)
        return Page(status=wrong.status, body=wrong.body, headers={**wrong.headers, **headers})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
