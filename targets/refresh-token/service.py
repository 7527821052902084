"""What both programs share: four callers come at once, each uses an access token; and the requests they make."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

CALLERS = 4


def serve(access_token: Callable[[], str]) -> None:
    """Wait for the sign, then let four callers come at once; print how many requests went well, and how many failed."""
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.002)
    good: list[bool] = []

    def call() -> None:
        try:
            good.append(use(access_token()) == 200)
        except Exception as error:
            print(f"{type(error).__name__}: {error}"[:400])
            good.append(False)

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    print(f"COUNT {good.count(True)} {good.count(False)}")


def exchange(refresh_token: str) -> dict[str, Any]:
    """One request to the token endpoint, as RFC 6749 has it."""
    form = urlencode({"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": "service"})
    connection = _connect(os.environ["TOKEN_URL"])
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", urlsplit(os.environ["TOKEN_URL"]).path, form, headers)
    die("sent")
    response = connection.getresponse()
    answer = json.loads(response.read() or b"{}")
    if response.status != 200:
        raise Refused(response.status, answer)
    die("received")
    return answer


class Refused(Exception):
    """The token endpoint's answer was no success."""

    def __init__(self, status: int, answer: dict[str, Any]) -> None:
        super().__init__(f"status {status}: {answer.get('error')}: {answer.get('error_description', '')[:300]}")
        self.status_code, self.body = status, answer


def use(access_token: str) -> int:
    """A request to the API that the token is for."""
    connection = _connect(os.environ["API_URL"])
    connection.request("GET", "/resource", headers={"Authorization": f"Bearer {access_token}"})
    return connection.getresponse().status


def die(where: str) -> None:
    """Here, if it is to be here."""
    if os.environ.get("DIE") == where:
        os.kill(os.getpid(), signal.SIGKILL)


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=90)
