"""A token endpoint that keeps one of four promises about refresh tokens, and errs where it is told.

`TokenEndpoint` is what it does; `main` serves it over a loopback socket as a process of its own, with a ledger that is
fsynced before an answer leaves. A line of the ledger is `exchanged`, `refused`, `revoked`, `served` or `denied`; its
`name` is the family, its `key` a digest of the refresh token that came: the ledger holds no secret.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn

from .ledger import Ledger, Line
from .receiver import whole_body

Json = dict[str, Any]


class Promise(StrEnum):
    """What a second use of a refresh token does."""

    STRICT = "strict"
    GRACE = "grace"
    FAMILY_REVOCATION = "family_revocation"
    REUSABLE = "reusable"
    ROTATING = "rotating"


class Fault(StrEnum):
    """What goes wrong with one arrival at the token endpoint."""

    NONE = "none"
    LOST = "lost"
    ERROR = "500"
    SLOW = "slow"
    BUSY = "503"
    TOO_MANY = "429"
    CLIENT = "invalid_client"
    GARBLED = "garbled"


class EndpointError(Exception):
    """A status that is not a success, as HTTP clients raise it."""

    def __init__(self, status_code: int, body: Json) -> None:
        """`body` is the answer's JSON."""
        super().__init__(f"status {status_code}: {body}")
        self.status_code, self.body = status_code, body


class Family:
    """One authorization: its tokens, and whether it was revoked."""

    def __init__(self, name: str) -> None:
        """Nothing was issued yet."""
        self.name, self.issued, self.is_revoked = name, 0, False


class TokenEndpoint:
    """Issues tokens over one ledger. `access_seconds`: the life of an access token; `grace_seconds`: of a used one."""

    def __init__(
        self,
        promise: Promise,
        ledger: Ledger,
        *,
        access_seconds: float = 3600.0,
        told_seconds: float | None = None,
        grace_seconds: float = 30.0,
        slow_seconds: float = 0.3,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        """Times are in seconds. `told_seconds` is what an answer says instead of how long a token really lives."""
        self.promise, self.ledger = promise, ledger
        self.faults: list[Fault] = []
        self._access_seconds, self._grace_seconds, self._slow_seconds = access_seconds, grace_seconds, slow_seconds
        self._told_seconds = access_seconds if told_seconds is None else told_seconds
        self._now, self._sleep = now, sleep
        self._lock = threading.Lock()
        self._families: dict[str, Family] = {}
        self._refresh: dict[str, tuple[Family, int]] = {}
        self._used_at: dict[str, float] = {}
        self._access: dict[str, tuple[Family, float]] = {}

    def authorize(self, name: str) -> Json:
        """A person signs in: the first tokens of a new family."""
        with self._lock:
            family = self._families[name] = Family(name)
            return self._issue(family, None)

    def revoke(self, name: str) -> None:
        """The person, or an administrator, ends the family."""
        with self._lock:
            self._families[name].is_revoked = True

    def exchange(self, refresh_token: str, fault: Fault = Fault.NONE) -> tuple[int, Json]:
        """One refresh arrives; (status, body), where status 0 means that none comes. `faults` are used up first."""
        with self._lock:
            fault = self.faults.pop(0) if self.faults else fault
        match fault:
            case Fault.BUSY:
                return 503, {"error": "temporarily_unavailable"}
            case Fault.TOO_MANY:
                return 429, {"error": "slow_down"}
            case Fault.CLIENT:
                return 401, {"error": "invalid_client"}
            case _:
                status, body = self._act(refresh_token)
        match fault:
            case Fault.LOST:
                return 0, {}
            case Fault.ERROR:
                return 500, {"message": "internal error", "partial": body}
            case Fault.GARBLED:
                return 200, {"unexpected": body}
            case Fault.SLOW:
                self._sleep(self._slow_seconds)
            case _:
                pass
        return status, body

    def use(self, access_token: str) -> int:
        """A request to a protected resource: 200, or 401."""
        with self._lock:
            family, until = self._access.get(access_token, (None, 0.0))
            is_good = family is not None and not family.is_revoked and self._now() < until
        self._note("served" if is_good else "denied", family.name if family else "", access_token, 0)
        return 200 if is_good else 401

    def _act(self, refresh_token: str) -> tuple[int, Json]:
        with self._lock:
            family, number = self._refresh.get(refresh_token, (None, 0))
            if family is None or family.is_revoked or not self._is_good(refresh_token):
                revokes = self.promise in (Promise.FAMILY_REVOCATION, Promise.GRACE)
                if family is not None and not family.is_revoked and revokes:
                    family.is_revoked = True
                    self._note("revoked", family.name, refresh_token, number)
                self._note("refused", family.name if family else "", refresh_token, number)
                return 400, {"error": "invalid_grant", "error_description": f"{refresh_token} is not good any more"}
            self._used_at.setdefault(refresh_token, self._now())
            body = self._issue(family, refresh_token)
        self._note("exchanged", family.name, refresh_token, number)
        return 200, body

    def _is_good(self, refresh_token: str) -> bool:
        used_at = self._used_at.get(refresh_token)
        if used_at is None or self.promise in (Promise.REUSABLE, Promise.ROTATING):
            return True
        return self.promise is Promise.GRACE and self._now() < used_at + self._grace_seconds

    def _issue(self, family: Family, used: str | None) -> Json:
        family.issued += 1
        access = f"access-{secrets.token_hex(12)}"
        self._access[access] = family, self._now() + self._access_seconds
        body: Json = {"access_token": access, "token_type": "Bearer", "expires_in": self._told_seconds}
        if used is None or self.promise is not Promise.REUSABLE:
            fresh = f"refresh-{secrets.token_hex(12)}"
            self._refresh[fresh] = family, family.issued
            body["refresh_token"] = fresh
        return body

    def _note(self, what: str, name: str, secret: str, number: int) -> None:
        self.ledger.add(Line(what=what, name=name, at=self._now(), key=digest_of(secret), number=number))


def digest_of(secret: str) -> str:
    """How the ledger names a token."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]


# --- over a socket ------------------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    endpoint: TokenEndpoint
    hold_seconds = 20.0

    def do_POST(self) -> None:
        body: Json = json.loads(whole_body(self) or b"{}")
        match self.path:
            case "/token":
                self._answer(*self.endpoint.exchange(body["refresh_token"], Fault(body["fault"])))
            case "/authorize":
                self._answer(200, self.endpoint.authorize(body["name"]))
            case "/revoke":
                self.endpoint.revoke(body["name"])
                self._answer(200, {})
            case _:
                self._answer(404, {})

    def do_GET(self) -> None:
        self._answer(self.endpoint.use(self.headers.get("Authorization", "").removeprefix("Bearer ")), {})

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the ledger says everything that is counted."""

    def _answer(self, status: int, body: Json) -> None:
        if status == 0:
            self.connection.settimeout(self.hold_seconds)
            try:
                self.connection.recv(1)  # until the caller gives up or dies
            except OSError:
                pass
            return
        content = json.dumps(body).encode()
        self.wfile.write(f"HTTP/1.0 {status} -\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError | ValueError):  # callers are killed all the time
            super().handle_error(request, client_address)


def main(path: str, promise: str, access_seconds: str, told_seconds: str, grace_seconds: str) -> NoReturn:
    """Print the port, then serve until standard input closes; what was done is in the ledger at `path`."""
    endpoint = TokenEndpoint(
        Promise(promise),
        Ledger(Path(path)),
        access_seconds=float(access_seconds),
        told_seconds=float(told_seconds),
        grace_seconds=float(grace_seconds),
    )
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"endpoint": endpoint}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
    raise SystemExit(0)


def exchange(port: int, refresh_token: str, *, timeout: float, fault: Fault = Fault.NONE) -> Json:
    """One request to the token endpoint; raises as HTTP clients do."""
    status, body = _call(port, "POST", "/token", {"refresh_token": refresh_token, "fault": fault.value}, timeout)
    if status >= 400:
        raise EndpointError(status, body)
    return body


def authorize(port: int, name: str, *, timeout: float = 10.0) -> Json:
    """A person signs in: the first tokens of a family."""
    return _call(port, "POST", "/authorize", {"name": name}, timeout)[1]


def revoke(port: int, name: str, *, timeout: float = 10.0) -> None:
    """The provider ends a family."""
    _call(port, "POST", "/revoke", {"name": name}, timeout)


def use(port: int, access_token: str, *, timeout: float = 10.0) -> int:
    """The status of a request to a protected resource."""
    return _call(port, "GET", "/resource", None, timeout, {"Authorization": f"Bearer {access_token}"})[0]


def _call(
    port: int, method: str, path: str, body: Json | None, timeout: float, headers: dict[str, str] | None = None
) -> tuple[int, Json]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    finally:
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
