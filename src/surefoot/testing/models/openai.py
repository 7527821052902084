"""How both OpenAI endpoints say that they failed."""

from __future__ import annotations

from .words import Json

TYPES = {400: "invalid_request_error", 401: "invalid_request_error", 404: "invalid_request_error", 429: "requests"}
CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}


def error(status: int, message: str) -> Json:
    """The body of an answer that is no success."""
    kind = TYPES.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": CODES.get(status)}}


def failed(status: int, message: str) -> Json:
    """What a chat stream that already began says instead of its next chunk."""
    return {"error": {**error(status, message)["error"], "code": CODES.get(status, "server_error")}}
