"""A service that answers from the routes in the configuration, with a ledger of what it did."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

from ...testing.ledger import Ledger, Line
from ...testing.twins.messages import Call, Page
from ..config import Route, Service
from .base import Answered
from .pattern import Pattern, Values, content_of


class Routed:
    """One service of kind `http`; its state lasts as long as its world."""

    def __init__(self, name: str, service: Service, ledger: Ledger) -> None:
        """Raises CrashtestError for a route that cannot be read."""
        self._name, self._ledger = name, ledger
        self._routes = [(Pattern(r.request, f"services.{name}"), r) for r in service.routes]
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._by_key: dict[tuple[str, str], tuple[float, str, Page]] = {}
        self._made: dict[str, list[Any]] = {}

    def answer(self, call: Call, target: str) -> Answered:
        """See Backend."""
        for pattern, route in self._routes:
            path = pattern.match(call)
            if path is not None:
                return self._serve(route, pattern.text, call, path)
        known = ", ".join(pattern.text for pattern, _ in self._routes)
        text = f"{self._name} has no route for {call.method} {call.path}; its routes are {known}"
        return Answered(page=_json(404, {"error": text}), unmatched=text)

    def _serve(self, route: Route, text: str, call: Call, path: dict[str, str]) -> Answered:
        with self._lock:
            values = Values(call, path, n=self._counts[text] + 1)
            if route.finds is not None:
                name = str(values.fill(route.finds))
                found = list(self._made.get(name, []))
                self._note("looked_up", name, "", call)
                return Answered(page=_json(route.status, Values(call, path, found=found).fill(route.reply)))
            if route.effect is None:
                return Answered(page=_json(route.status, values.fill(route.reply)))
            return self._act(route, text, call, values)

    def _act(self, route: Route, text: str, call: Call, values: Values) -> Answered:
        name, key = str(values.fill(route.effect)), values.key(route.key)
        body = json.dumps(content_of(call), sort_keys=True)
        held = self._by_key.get((text, key)) if key else None
        if held is not None and (route.window_seconds is None or time.time() - held[0] < route.window_seconds):
            if held[1] != body:
                self._note("refused", name, key, call)
                return Answered(page=_json(422, {"error": f"the key {key} was used for another request"}))
            self._note("repeated", name, key, call)
            return Answered(page=held[2])
        if route.refuse and name in self._made:
            self._note("refused", name, key, call)
            return Answered(page=_json(409, {"error": f"{name} exists", "found": self._made[name]}))
        self._counts[text] += 1
        reply = values.fill(route.reply)
        page = _json(route.status, reply)
        self._made.setdefault(name, []).append(reply)
        if key:
            self._by_key[text, key] = (time.time(), body, page)
        self._note("performed", name, key, call, self._counts[text])
        return Answered(page=page, acted=(name,))

    def _note(self, what: str, name: str, key: str, call: Call, number: int = 0) -> None:
        body = json.dumps(content_of(call), sort_keys=True)
        self._ledger.add(Line(what=what, name=name, at=time.time(), key=key, body=body, number=number))

    def close(self) -> None:
        """Nothing was started."""


def _json(status: int, body: Any) -> Page:
    return Page(status=status, body=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
