"""The agents' hands: one request to the refund desk."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from typing import Any

TICKET = "T-81"


def refund(amount: int, headers: Mapping[str, str], timeout: float = 10) -> dict[str, Any]:
    """Pay back; the receipt."""
    content = json.dumps({"ticket": TICKET, "amount": amount}).encode()
    head = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(os.environ["DESK"] + "/do/refund", content, head)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def find(key: str) -> dict[str, Any] | None:
    """What was paid under this key."""
    with urllib.request.urlopen(f"{os.environ['DESK']}/find/refund?key={key}", timeout=10) as answer:
        found = json.load(answer)["found"]
    return found[0] if found else None
