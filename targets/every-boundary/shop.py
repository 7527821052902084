"""The agent's hands: one model call, one operation of the shop, one look-up."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
ORDER = "81"
TOOLS = [{"type": "function", "function": {"name": "shop", "parameters": {"type": "object"}}}]


def opening() -> list[Json]:
    """The conversation before the first turn."""
    return [{"role": "user", "content": f"Check out order {ORDER}: reserve, charge, confirm."}]


def ask(messages: list[Json]) -> Json:
    """The model's next message; paid for."""
    body = {"model": "scripted", "messages": messages, "tools": TOOLS}
    head = {"Authorization": "Bearer scripted"}
    return _call("POST", os.environ["MODEL"] + "/chat/completions", body, head, 30)["choices"][0]["message"]


def asked_for(message: Json) -> tuple[str, str]:
    """The tool call's id and the operation that it asks for."""
    call = message["tool_calls"][0]
    return call["id"], json.loads(call["function"]["arguments"])["op"]


def operate(operation: str, headers: Mapping[str, str] | None = None, timeout: float = 5.0) -> Json:
    """One operation; it changes the world."""
    return _call("POST", f"{os.environ['SHOP']}/do/{operation}", {"order": ORDER}, headers or {}, timeout)


def find(operation: str) -> Json | None:
    """What the shop shows of this operation on the order."""
    found = _call("GET", f"{os.environ['SHOP']}/find/{operation}?order={ORDER}", None, {}, 5.0)["found"]
    return found[0] if found else None


def _call(method: str, url: str, body: Json | None, headers: Mapping[str, str], timeout: float) -> Json:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json", **headers}, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)
