"""Recordings: what real services answered once, kept in a file, so that a thousand crashes touch nobody.

A request is found by its content: service, method, path, query and body, without what `ignore` cuts out. The second
one of the same content gets the second answer, and the last answer stands for all later ones. Nothing of a request's
headers is kept but its key and content type: no secret of the agent's reaches the file through them.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ...testing.ledger import Ledger, Line
from ...testing.twins.behaviour import SUCCESSES, Said
from ...testing.twins.engine import Engine
from ...testing.twins.messages import Call, Page, Request
from ...testing.twins.plain import PlainWire
from ..boundary import place_of
from ..config import Service
from ..errors import CrashtestError
from ..tokens import tokens_of
from .base import Answered
from .pattern import content_of
from .watched import UNREACHED, Rules, unreached

KEPT_REPLY_HEADERS = ("content-type", "retry-after", "location", "etag", *("idempotent-replayed",))


class Exchange(msgspec.Struct, kw_only=True, frozen=True):
    """One request and its answer. Bodies that are no text are base64, and `binary` says so."""

    service: str
    method: str
    path: str
    query: dict[str, str]
    body: str
    status: int
    headers: dict[str, str]
    reply: str
    binary: bool = False
    host: str = ""


def exchange_of(service: str, call: Call, page: Page, *, host: str = "") -> Exchange:
    """An exchange as it is kept."""
    try:
        body, reply, binary = call.body.decode(), page.body.decode(), False
    except UnicodeDecodeError:
        body, reply, binary = base64.b64encode(call.body).decode(), base64.b64encode(page.body).decode(), True
    kept = {name: value for name, value in page.headers.items() if name.lower() in KEPT_REPLY_HEADERS}
    return Exchange(
        service=service,
        method=call.method,
        path=call.path,
        query=call.query,
        body=body,
        status=page.status,
        headers=kept,
        reply=reply,
        binary=binary,
        host=host,
    )


def read_recording(path: Path) -> list[Exchange]:
    """Every exchange in a file. Raises CrashtestError for what is no recording."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CrashtestError(
            f"the recording cannot be read: {error}; make one with: surefoot crashtest record --out {path}"
        ) from None
    try:
        return [msgspec.json.decode(line, type=Exchange) for line in lines if line.strip()]
    except msgspec.MsgspecError as error:
        raise CrashtestError(f"{path} is no recording of surefoot crashtest: {error}; record it again") from None


def write_recording(path: Path, exchanges: Iterable[Exchange]) -> None:
    """Write the whole file, or leave the one that was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in exchanges))
    beside.replace(path)


class Recorded:
    """One service that answers from a recording, under a receiver's contract if it has one."""

    def __init__(
        self,
        name: str,
        service: Service,
        exchanges: Sequence[Exchange],
        ledger: Ledger,
        *,
        ignore: Sequence[str],
        contract: Engine | None,
    ) -> None:
        """`contract` decides what a repeat does; without one each arrival acts."""
        self._name, self._ledger, self._ignore, self._contract = name, ledger, ignore, contract
        self._rules, self._is_model = Rules(name, service), service.is_model
        self._lock = threading.Lock()
        self._given: Counter[str] = Counter()
        self._held: dict[str, list[Exchange]] = {}
        for each in exchanges:
            self._held.setdefault(self._digest(each.method, each.path, each.query, each.body), []).append(each)

    def _digest(self, method: str, path: str, query: dict[str, str], body: str) -> str:
        try:
            body = json.dumps(json.loads(body), sort_keys=True)
        except ValueError:
            pass
        text = f"{method} {path} {json.dumps(query, sort_keys=True)} {body}"
        for pattern in self._ignore:
            text = re.sub(pattern, "", text)
        return hashlib.sha256(text.encode()).hexdigest()

    def answer(self, call: Call, target: str) -> Answered:
        """See Backend."""
        try:
            body = call.body.decode()
        except UnicodeDecodeError:
            body = base64.b64encode(call.body).decode()
        digest = self._digest(call.method, call.path, call.query, body)
        with self._lock:
            held = self._held.get(digest)
            place = self._given[digest]
            self._given[digest] += 1
        if held is None:
            text = self._why(call, body)
            page = Page(
                status=404, body=json.dumps({"error": text}).encode(), headers={"content-type": "application/json"}
            )
            return Answered(page=page, unmatched=text)
        exchange = held[min(place, len(held) - 1)]
        reply = base64.b64decode(exchange.reply) if exchange.binary else exchange.reply.encode()
        page = Page(status=exchange.status, body=reply, headers=dict(exchange.headers))
        if self._is_model:
            return Answered(page=page, tokens=tokens_of(page.body) if page.status < 300 else 0)
        named = self._rules.name(call)
        if named is None or not 200 <= page.status < 300:
            return Answered(page=page)
        if self._contract is not None:
            return self._under_contract(self._contract, call, page, named[0])
        text = json.dumps(content_of(call), sort_keys=True)
        self._ledger.add(Line(what="performed", name=named[0], at=time.time(), key=named[1], body=text))
        return Answered(page=page, acted=(named[0],))

    def _under_contract(self, contract: Engine, call: Call, page: Page, name: str) -> Answered:
        wire, behaviour = PlainWire(), contract.behaviour
        operation = next(iter(behaviour.operations))
        last = call.path.rstrip("/").rpartition("/")[2]
        content: Any = content_of(call)
        shaped = replace(
            call,
            method="POST",
            path=f"/{operation}/{last}",
            body=json.dumps(content if isinstance(content, dict) else {}).encode(),
        )
        asked = wire.read(shaped, behaviour)
        if not isinstance(asked, Request):
            return Answered(page=asked if isinstance(asked, Page) else page)
        asked = replace(asked, name=name)
        answer = contract.receive(asked)
        if answer.said not in SUCCESSES:
            return Answered(page=wire.write(answer, asked, behaviour))
        acted = answer.said is Said.MADE and not answer.replayed
        if answer.replayed and behaviour.replay_marker is not None:
            page = replace(page, headers={**page.headers, **dict([behaviour.replay_marker])})
        return Answered(page=page, acted=(name,) if acted else ())

    def _why(self, call: Call, body: str) -> str:
        place = place_of(call, self._ignore)
        alike = [
            e for held in self._held.values() for e in held if f"{e.method} {e.path}" == f"{call.method} {call.path}"
        ]
        if not alike:
            known = sorted({f"{e.method} {e.path}" for held in self._held.values() for e in held})
            return f"the recording holds no {place} for {self._name}; it holds {', '.join(known[:8]) or 'nothing'}"
        near = difflib.get_close_matches(body, [e.body for e in alike], 1, 0.0)
        old = near[0] if near else alike[0].body
        at = next((i for i, (a, b) in enumerate(zip(old, body, strict=False)) if a != b), min(len(old), len(body)))
        start = max(0, at - 30)
        return (
            f"the recording holds {place} for {self._name} with another content: recorded …{old[start : at + 50]!r}, "
            f"arrived …{body[start : at + 50]!r}; cut what differs from run to run by `ignore`, or record again"
        )

    def close(self) -> None:
        """Nothing was started."""


class Recorder:
    """Passes everything on, and keeps it."""

    def __init__(self, name: str, forward: Any, kept: list[Exchange], *, host: str = "") -> None:
        """Exchanges are appended to `kept` in the order of their answers."""
        self._name, self._forward, self._kept, self._host = name, forward, kept, host
        self._lock = threading.Lock()

    def answer(self, call: Call, target: str) -> Answered:
        """See Backend."""
        page: Page = self._forward(call, target)
        if UNREACHED in page.headers:
            return Answered(page=page, unmatched=unreached(page))
        with self._lock:
            self._kept.append(exchange_of(self._name, call, page, host=self._host))
        return Answered(page=page, tokens=tokens_of(page.body) if page.status < 300 else 0)

    def close(self) -> None:
        """Nothing was started."""
