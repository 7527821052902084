"""The support agent's hands: one model call, one write, one look-up; shared by all its forms."""

from __future__ import annotations

import http.client
import json
from typing import Any

STEPS, WRITES = 12, (4, 7, 10)
Json = dict[str, Any]


class Answer(Exception):
    """An answer that is not a success."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"status {status_code}")
        self.status_code = status_code


class Desk:
    """The services as one run sees them; `place` is host:port/run."""

    def __init__(self, place: str) -> None:
        self._host, _, self._run = place.partition("/")

    def ask_model(self, number: int) -> Json:
        """The model call of a step: 2,325 tokens."""
        return self._call("POST", f"model/{number}", {})

    def write(
        self, number: int, *, headers: dict[str, str] | None = None, reference: str = "", timeout: float = 30
    ) -> Json:
        """The write of a step: a refund, a note, a mail."""
        return self._call("POST", f"do/{number}", {"reference": reference}, headers, timeout)

    def find(self, number: int, reference: str) -> list[Json]:
        """What was written in this step under this reference."""
        return self._call("GET", f"find/{number}?reference={reference}", None)["found"]

    def _call(
        self, method: str, path: str, body: Json | None, headers: dict[str, str] | None = None, timeout: float = 30
    ) -> Json:
        connection = http.client.HTTPConnection(self._host, timeout=timeout)
        try:
            connection.request(
                method, f"/{self._run}/{path}", None if body is None else json.dumps(body), headers or {}
            )
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                raise Answer(response.status)
            return json.loads(content)
        finally:
            connection.close()
