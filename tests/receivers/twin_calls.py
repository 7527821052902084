"""How the tests of twins call one, and the behaviours that they call."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

import pytest

from surefoot.core.contract import Place
from surefoot.testing.twins import Behaviour, Sort, Twin

KEY, OTHER_KEY = "0e8d1f4c-1b0f-4c3a-9d52-7f6f3a2b1c00", "1e8d1f4c-1b0f-4c3a-9d52-7f6f3a2b1c00"
WINDOW = 100.0
SECRETS = (Sort.SINGLE_USE_SECRET, Sort.ROTATING_REUSABLE_SECRET, Sort.REUSABLE_SECRET)


class Got(NamedTuple):
    """An HTTP answer."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def code(self) -> str:
        return self.body["error"]["code"]


def send(twin: Twin, body: Any, *, key: str = "", path: str = "/create", timeout: float = 20.0, **headers: str) -> Got:
    """One request, with the key where this behaviour wants it."""
    place, name = twin.behaviour.place, twin.behaviour.key_name
    if key and place is Place.BODY:
        body = {**body, name: key}
    elif key and place is Place.PATH:
        path = f"{path}/{key}"
    elif key and place is Place.QUERY:
        path = f"{path}?{name}={key}"
    elif key and place is Place.HEADER:
        headers = {**headers, name: key}
    return call(twin.port, "POST", path, body, timeout=timeout, **headers)


def call(port: int, method: str, path: str, body: Any = None, *, timeout: float = 20.0, **headers: str) -> Got:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return Got(answer.status, json.loads(answer.read() or b"{}"), dict(answer.headers))
    finally:
        connection.close()


def behave(sort: Sort = Sort.KEY_REPLAY, **more: Any) -> Behaviour:
    place = Place.BODY if sort in SECRETS else Place.HEADER
    return Behaviour(name="acme", operations={"create": sort}, window_seconds=WINDOW, place=place, **more)


def twins(*behaviours: Behaviour) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("twin", behaviours, indirect=True, ids=lambda b: next(iter(b.operations.values())))
