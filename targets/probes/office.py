"""The agent's hands, shared by all its forms: the model, the refund desk and the mail server."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
CHARGE = "ch_7"
CODE = os.environ.get("CODE", "v1")
"""Which version of the program runs: v1, inserted, renamed, removed, other_amount."""
AMOUNT = 10
TIMEOUT = float(os.environ.get("TIMEOUT", "0.5"))
"""How long one request may take, in seconds."""


def assess(charge: str) -> Json:
    """The model call."""
    return _call("GET", f"/assess/{charge}", None, {}, 10)


def send(what: str, body: Json, *, headers: Mapping[str, str] | None = None, timeout: float = TIMEOUT) -> Json:
    """One request that changes the world."""
    return _call("POST", f"/do/{what}", body, headers or {}, timeout)


def find(what: str, key: str) -> Json | None:
    """What was done under this key."""
    found = _call("GET", f"/find/{what}?key={key}", None, {}, 5)["found"]
    return found[0] if found else None


def _call(method: str, path: str, body: Json | None, headers: Mapping[str, str], timeout: float) -> Json:
    content = None if body is None else json.dumps(body).encode()
    head = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(os.environ["OFFICE"] + path, content, head, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def say(assessment: Json, receipt: Json) -> None:
    """The agent's last words: what the harness checks."""
    print("ANSWER " + json.dumps([assessment.get("text"), receipt.get("receipt")]))
