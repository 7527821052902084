"""The world: logs, tickets, pages, a status page and metrics, and the ledger of what really happened.

A write appends to the ledger and fsyncs before it answers, so the ledger is the truth however the agent dies. The
place's offer decides what it does about a duplicate: honour keys, let itself be looked up by a reference it was
given, or neither.
"""

import hashlib
import json
from urllib.parse import parse_qs

from surefoot.demo.receiver import Handler, Json, Place, serve_until_orphaned
from surefoot.demo.scenario import BY_KIND, Offer, Window

_READINGS: dict[str, Json] = {
    "logs": {"lines": ["14:02 deploy checkout 5f1c", "14:03 gateway timeout", "14:03 gateway timeout"]},
    "metrics": {"error_rate": 0.061, "p99_ms": 4_180},
}


class WorldHandler(Handler):
    """``GET /{place}/logs|metrics``, ``POST /{place}/tickets|pages|status``, ``GET /{place}/KIND?reference=``."""

    def serve(self, place: Place, method: str, path: list[str], body: Json) -> tuple[int, Json] | None:
        turn = BY_KIND.get(path[0]) if len(path) == 1 else None
        if turn is None:
            return 404, {"error": f"no such thing: {self.path}"}
        if turn.writes and method == "GET":
            return self._look_up(place, turn.kind)
        if method != ("POST" if turn.writes else "GET"):
            return 405, {"error": f"{method} is not for {turn.kind}"}
        number = place.arrive()
        if place.strike(number, Window.BEFORE):
            return None
        answer = self._write(place, turn.kind, body) if turn.writes else _read(place, turn.kind)
        if place.strike(number, Window.EFFECT):
            return None
        return answer

    def _write(self, place: Place, kind: str, body: Json) -> tuple[int, Json]:
        key = self.headers.get("idempotency-key") if place.offer == Offer.KEYS else None
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
        with place.lock:
            performed = [line for line in place.lines if line["event"] == "performed" and line["kind"] == kind]
            for line in performed:
                if key is None or line["key"] != key:
                    continue
                if line["digest"] != digest:
                    return 422, {"error": "this key was used for another request"}
                place.append({"event": "repeated", "kind": kind, "key": key, "receipt": line["receipt"]})
                return 200, line["receipt"]
            receipt = {"id": f"{kind}-{len(performed) + 1}"}
            reference = body.get("reference")
            place.append(
                {
                    "event": "performed",
                    "kind": kind,
                    "key": key,
                    "reference": reference,
                    "digest": digest,
                    "receipt": receipt,
                }
            )
            return 201, receipt

    def _look_up(self, place: Place, kind: str) -> tuple[int, Json]:
        if place.offer != Offer.LOOKUP:
            return 404, {"error": "this receiver cannot be looked up"}
        wanted = parse_qs(self.path.partition("?")[2]).get("reference", [""])[0]
        with place.lock:
            performed = [line for line in place.lines if line["event"] == "performed" and line["kind"] == kind]
            found = [line["receipt"] for line in performed if line["reference"] == wanted]
            place.append({"event": "looked_up", "kind": kind, "reference": wanted, "found": len(found)})
        return 200, {"found": found}


def _read(place: Place, kind: str) -> tuple[int, Json]:
    with place.lock:
        place.append({"event": "read", "kind": kind})
    return 200, _READINGS[kind]


if __name__ == "__main__":
    serve_until_orphaned(WorldHandler)
