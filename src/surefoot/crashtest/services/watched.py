"""Services that answer elsewhere: what passes is watched, and what changed the world is written down before it leaves.

A service that is watched says nothing about its own ledger, so an effect is a changing request that was answered with
2xx, unless the answer says or shows that it is a repeat.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from ...testing.ledger import Ledger, Line
from ...testing.twins.messages import Call, Page
from ..boundary import place_of
from ..config import EffectRule, Service
from ..tokens import tokens_of
from ..wire import HOP_BY_HOP
from .base import Answered
from .pattern import CHANGING, Pattern, Values, content_of

UNREACHED = "x-surefoot-crashtest-unreached"
REPLAY_MARKERS = ("idempotent-replayed", "idempotency-replayed", "x-idempotent-replayed")
Forward = Callable[[Call, str], Page]


class Rules:
    """Which requests of a watched service are effects, and what they are called."""

    def __init__(self, name: str, service: Service) -> None:
        """Raises CrashtestError for a pattern that cannot be read."""
        self._is_model = service.is_model
        rules = service.effects
        self._rules: list[tuple[Pattern, EffectRule]] | None = (
            None if rules is None else [(Pattern(r.request, f"services.{name}.effects"), r) for r in rules]
        )

    def name(self, call: Call) -> tuple[str, str] | None:
        """(name of the effect, its key); None for a request that changes nothing."""
        if self._is_model:
            return None
        if self._rules is None:
            if call.method not in CHANGING:
                return None
            return place_of(call, ()), Values(call, {}).key("Idempotency-Key")
        for pattern, rule in self._rules:
            path = pattern.match(call)
            if path is not None:
                values = Values(call, path)
                return str(values.fill(rule.name)) if rule.name else place_of(call, ()), values.key(rule.key)
        return None


class Watched:
    """One service of kind `upstream` or `command`."""

    def __init__(
        self, name: str, service: Service, ledger: Ledger, forward: Forward, close: Callable[[], None]
    ) -> None:
        """`forward` sends a request on and returns its answer; `close` ends what was started for it."""
        self._rules, self._is_model = Rules(name, service), service.is_model
        self._ledger, self._forward, self._close = ledger, forward, close
        self._lock = threading.Lock()
        self._replies: dict[tuple[str, str], bytes] = {}

    def answer(self, call: Call, target: str) -> Answered:
        """See Backend."""
        page = self._forward(call, target)
        if UNREACHED in page.headers:
            return Answered(page=page, unmatched=unreached(page))
        if self._is_model:
            return Answered(page=page, tokens=tokens_of(page.body) if page.status < 300 else 0)
        named = self._rules.name(call)
        if named is None or not 200 <= page.status < 300:
            return Answered(page=page)
        name, key = named
        with self._lock:
            seen = self._replies.get((name, key)) if key else None
            self._replies[name, key] = page.body
        marked = any(page.headers.get(each, "").lower() == "true" for each in REPLAY_MARKERS)
        repeated = marked or (seen is not None and seen == page.body)
        body = json.dumps(content_of(call), sort_keys=True)
        what = "repeated" if repeated else "performed"
        self._ledger.add(Line(what=what, name=name, at=time.time(), key=key, body=body))
        return Answered(page=page, acted=() if repeated else (name,))

    def close(self) -> None:
        """See Backend."""
        self._close()


def unreached(page: Page) -> str:
    """What is said where a service could not be asked, so that no such page is taken for its answer."""
    return f"{json.loads(page.body)['error']}; is it up, and is its url right?"


def forward_to(url: str, *, timeout: float = 120.0) -> Forward:
    """Sends requests on to this base URL. A service that cannot be reached is answered 502."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    host, base = parts.netloc, parts.path.rstrip("/")

    def forward(call: Call, target: str) -> Page:
        headers = {n: v for n, v in call.headers.items() if n not in HOP_BY_HOP and n not in ("host", "expect")}
        headers["accept-encoding"] = "identity"
        connection = kind(host, timeout=timeout)
        try:
            connection.request(call.method, base + target, call.body or None, headers)
            answer = connection.getresponse()
            held = {name.lower(): value for name, value in answer.getheaders()}
            return Page(status=answer.status, body=answer.read(), headers=held)
        except (OSError, http.client.HTTPException) as error:
            text = json.dumps({"error": f"surefoot crashtest could not reach {url}: {error}"})
            return Page(status=502, body=text.encode(), headers={"content-type": "application/json", UNREACHED: url})
        finally:
            connection.close()

    return forward
