"""The test's own door of a model server, and the few pages beside the model that SDKs look at.

POST /-/next {"meets": [{"error": 429, "retry_after": 0.01}]}      POST /-/at {"number": 3, "meets": {"kill": "before"}}
POST /-/victim {"pid": 4711}      GET /-/record      GET /-/asks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .anthropic import MESSAGES
from .service import Meets, Whole
from .words import Json, counted
from .words import Say as _Say

if TYPE_CHECKING:
    from .server import ModelServer

KNOWN = "next, at, victim (POST), record and asks (GET)"


def open_door(server: ModelServer, method: str, path: str, body: Json) -> Whole:
    """Everything that is no request to the model."""
    try:
        match method, path:
            case "POST", "/-/next":
                server.next(*(meets_of(held) for held in body["meets"]))
            case "POST", "/-/at":
                server.at(int(body["number"]), meets_of(body["meets"]))
            case "POST", "/-/victim":
                server.victim.is_(int(body["pid"]))
            case "GET", "/-/record":
                return Whole(status=200, body={"lines": msgspec.to_builtins(server.service.ledger.lines())})
            case "GET", "/-/asks":
                return Whole(status=200, body={"asks": [ask.body for ask in server.asks]})
            case "GET", _ if path.endswith("/models"):
                listed = [{"id": "scripted", "object": "model", "created": 0, "owned_by": "surefoot"}]
                return Whole(status=200, body={"object": "list", "data": listed, "has_more": False})
            case "POST", _ if path.endswith("/messages/count_tokens"):
                return Whole(status=200, body={"input_tokens": counted(MESSAGES.read(body, path), _Say()).input})
            case _:
                text = f"nothing is served at {method} {path}; the door /-/ has {KNOWN}"
                return Whole(status=404, body=MESSAGES.error(404, text))
    except (KeyError, TypeError, ValueError) as error:
        return Whole(status=400, body=MESSAGES.error(400, f"{type(error).__name__}: {error}"))
    return Whole(status=200, body={})


def meets_of(held: Any) -> Meets:
    """`Meets` from JSON; a field that it does not have is an error."""
    unknown = set(held) - set(Meets.__dataclass_fields__)
    if unknown:
        raise ValueError(f"unknown {sorted(unknown)}; a request meets {sorted(Meets.__dataclass_fields__)}")
    return msgspec.convert(held, Meets)
