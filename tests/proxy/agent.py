"""Agents of the tests: they know a base URL and nothing of Surefoot, and die where they are told."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Say = Callable[[str], None]
CANARY = "canary-secret-of-the-agent"


def chat(say: Say, base: str, calls: int, stream: bool, die_at: int, die_when: str, same: bool = False) -> None:
    """Ask `calls` times, in a row. `die_when`: `sent`, `begun` (the answer has), `read`; `same`: the same each time."""
    for number in range(calls):
        doing = die_when if number == die_at else ""
        say(f"{number} {ask(base, 'same' if same else f'question {number}', stream, doing)}")
    say("done")


def ask(base: str, question: str, stream: bool, die_when: str = "", model: str = "m") -> str:
    """One request to a chat endpoint: status and digest of the body; or death."""
    body = {"model": model, "messages": [{"role": "user", "content": question}], "stream": stream}
    headers = {"Authorization": f"Bearer {CANARY}"}
    return _asked(base, "/chat/completions", body, headers, die_when)


def gemini(say: Say, base: str, calls: int, stream: bool, die_at: int, die_when: str) -> None:
    """The same at Gemini's API."""
    for number in range(calls):
        body = {"contents": [{"role": "user", "parts": [{"text": f"question {number}"}]}]}
        path = f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
        doing = die_when if number == die_at else ""
        say(f"{number} {_asked(base, path, body, {'x-goog-api-key': CANARY}, doing)}")
    say("done")


def _asked(base: str, more: str, body: Any, headers: dict[str, str], die_when: str) -> str:
    connection, path = _connect(base)
    connection.request("POST", f"{path}{more}", json.dumps(body), {"Content-Type": "application/json", **headers})
    if die_when == "sent":
        die()
    response = connection.getresponse()
    if die_when == "begun":
        response.read(1)
        die()
    content = response.read()
    if die_when == "read":
        die()
    connection.close()
    return f"{response.status} {hashlib.sha256(content).hexdigest()[:16]}"


def at_once(say: Say, base: str) -> None:
    """One call, told when it is back."""
    say(ask(base, "the same thing", False))


def refresh(say: Say, token_url: str, use_url: str, store: str, uses: int, every: int, die_when: str = "") -> None:
    """Use a token that is kept in a file, and refresh it at every so many uses, as replicas of one service do.

    The file is written in two steps, the access token first. `die_when`: `sent`, `received`, `between`.
    """
    answers: list[str] = []
    for number in range(uses):
        held = json.loads(Path(store).read_text())
        if number % every == 0:
            held = _refreshed(token_url, held, store, die_when)
            if held is None:
                answers.append("failed")
                continue
        answers.append(str(_post(use_url, None, {"Authorization": f"Bearer {held['access_token']}"})[0]))
    say(" ".join(answers))


def _refreshed(token_url: str, held: dict[str, Any], store: str, die_when: str) -> dict[str, Any] | None:
    status, fresh = _post(
        token_url,
        {"refresh_token": held["refresh_token"], "fault": "slow" if die_when == "sent" else "none"},
        {},
        die_when,
    )
    if status != 200:
        return None
    if die_when == "received":
        die()
    for name in ("access_token", "refresh_token"):
        held = {**held, name: fresh.get(name, held[name])}
        with open(f"{store}.{os.getpid()}", "w") as file:
            json.dump(held, file)
        os.replace(file.name, store)
        if die_when == "between":
            die()
    return held


def _post(url: str, body: Any, headers: dict[str, str], die_when: str = "") -> tuple[int, Any]:
    connection, path = _connect(url)
    if body is None:
        connection.request("GET", path, headers=headers)
    else:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    if die_when == "sent":
        die()
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, json.loads(content or b"{}")


def _connect(url: str) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60), parts.path


def die() -> None:
    """As an agent dies when its machine goes: at once, with nothing said."""
    os.kill(os.getpid(), signal.SIGKILL)
