"""Skyvern's public HTTP API, as far as an order needs it."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from typing import Any

ORDER = "81"
PROMPT = "Press the Place order button exactly once."
FINAL = ("completed", "failed", "terminated", "canceled", "timed_out")
PATIENCE_SECONDS = 240.0


def call(method: str, url: str, body: Any = None) -> Any:
    """One request with the API key."""
    content = None if body is None else json.dumps(body).encode()
    head = {"Content-Type": "application/json", "x-api-key": os.environ["SKYVERN_KEY"]}
    with urllib.request.urlopen(urllib.request.Request(url, content, head, method=method), timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def submit(headers: dict[str, str] | None = None) -> str:
    """Start a task that orders; its id. `headers` are sent by its browser with each request."""
    task = {"prompt": PROMPT, "url": os.environ["CHECKOUT"], "engine": "skyvern-1.0", "max_steps": 4}
    if headers:
        task["extra_http_headers"] = headers  # pyright: ignore[reportArgumentType]
    return str(call("POST", os.environ["SKYVERN"] + "/v1/run/tasks", task)["run_id"])


def status(run: str) -> str:
    """What Skyvern says of a task."""
    return str(call("GET", f"{os.environ['SKYVERN']}/v1/runs/{run}")["status"])


def wait(run: str, seconds: float = PATIENCE_SECONDS) -> str:
    """Its last status, or the one after that many seconds."""
    give_up = time.monotonic() + seconds
    while (said := status(run)) not in FINAL and time.monotonic() < give_up:
        time.sleep(1)
    return said


def end_what_still_runs() -> list[str]:
    """Cancel every task that Skyvern calls unfinished; their ids. This server has no other work than our order."""
    tasks = call("GET", os.environ["SKYVERN"] + "/api/v1/tasks?page_size=50")
    left = [task["task_id"] for task in tasks if task["status"] not in FINAL]
    for each in left:
        call("POST", f"{os.environ['SKYVERN']}/v1/runs/{each}/cancel", {})
    return left


def find_order() -> dict[str, Any] | None:
    """Ask the shop itself for the order."""
    with urllib.request.urlopen(f"{os.environ['SHOP']}/find/order", timeout=10) as answer:
        found = json.load(answer)["found"]
    return found[0] if found else None
