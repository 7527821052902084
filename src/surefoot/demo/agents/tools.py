"""The agents' hands: one model call, one tool call, and the place where a life ends by itself.

Shared by every agent, so that the only difference between them is what they keep. Standard library only: agents are
started over four hundred times in a matrix, and start-up is most of their lives.
"""

import json
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]

TURNS = 5
ROUTES = {
    "read_logs": ("GET", "logs"),
    "open_ticket": ("POST", "tickets"),
    "page_on_call": ("POST", "pages"),
    "post_status": ("POST", "status"),
    "read_metrics": ("GET", "metrics"),
}
"""Each tool's request at the world; what is posted is a write."""

_TIMEOUT_SECONDS = 20.0


class Answer(Exception):
    """An answer that is not a success; ``status_code`` is the receiver's."""

    def __init__(self, status_code: int, body: bytes) -> None:
        super().__init__(f"expected a 2xx answer, got {status_code}: {body[:200]!r}")
        self.status_code = status_code


def opening(incident: str) -> list[Json]:
    """The conversation before the first turn."""
    return [
        {"role": "system", "content": "You respond to incidents. Use one tool at a time."},
        {"role": "user", "content": f"Handle incident {incident}."},
    ]


def ask_model(messages: list[Json]) -> Json:
    """Asks the model; the whole completion, so that whoever keeps it keeps its token count too."""
    body = {"model": "scripted", "messages": messages}
    return _call("POST", os.environ["SUREFOOT_DEMO_MODEL"], "v1/chat/completions", body)


def asked_for(completion: Json) -> tuple[str, Json]:
    """The tool and the arguments that a completion asks for."""
    function = completion["choices"][0]["message"]["tool_calls"][0]["function"]
    return function["name"], json.loads(function["arguments"])


def answered(completion: Json, result: Json) -> list[Json]:
    """The two messages that a finished turn adds to the conversation."""
    message = completion["choices"][0]["message"]
    call_id = message["tool_calls"][0]["id"]
    return [message, {"role": "tool", "tool_call_id": call_id, "content": json.dumps(result)}]


def use(
    tool: str, arguments: Json, *, headers: Mapping[str, str] | None = None, timeout: float = _TIMEOUT_SECONDS
) -> Json:
    """Calls a tool of the world; raises Answer when the world says no."""
    method, path = ROUTES[tool]
    body = arguments if method == "POST" else None
    return _call(method, os.environ["SUREFOOT_DEMO_WORLD"], path, body, headers=headers, timeout=timeout)


def look_up(tool: str, reference: str) -> list[Json]:
    """The receipts the world holds for a reference that was sent along with a write."""
    path = f"{ROUTES[tool][1]}?reference={reference}"
    found: list[Json] = _call("GET", os.environ["SUREFOOT_DEMO_WORLD"], path)["found"]
    return found


def die_after(step: int) -> None:
    """Ends this life by a real SIGKILL if the ``recorded`` window of this step is the armed one."""
    if os.environ.get("SUREFOOT_DEMO_DIE_AFTER") == str(step):
        os.kill(os.getpid(), signal.SIGKILL)


def _call(
    method: str,
    base: str,
    path: str,
    body: Json | None = None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = _TIMEOUT_SECONDS,
) -> Json:
    host, _, place = base.partition("/")
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} /{place}/{path} HTTP/1.0", f"content-length: {len(payload)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    status_code, received = _exchange(host, "\r\n".join([*lines, "", ""]).encode() + payload, timeout)
    if not 200 <= status_code < 300:
        raise Answer(status_code, received)
    decoded: Json = json.loads(received)
    return decoded


def _exchange(host: str, request: bytes, timeout: float) -> tuple[int, bytes]:
    """One request, one connection; half of a plain agent's life would go into importing ``http.client``."""
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout) as connection:
        connection.sendall(request)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, blank, body = received.partition(b"\r\n\r\n")
    if not blank:
        raise ConnectionError(f"expected an answer from {host}, the connection closed after {len(received)} bytes")
    return int(head.split(None, 2)[1]), body
