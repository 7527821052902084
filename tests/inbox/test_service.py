"""What a client sees of a protected service, over real HTTP."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot import UsageError
from surefoot.inbox import Answer, IdempotencyMiddleware, Inbox, idempotency, idempotent
from surefoot.inbox.claims import Ask
from surefoot.inbox.rules import Doubt, Run, Standing
from surefoot.testing.forkserver import ForkServer
from tests.inbox.conftest import UNKNOWN, Service, ask, key_of, problem_type

TYPE = "urn:surefoot:inbox:"


@pytest.fixture(scope="module")
def shared(forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that do not touch it from outside; each uses keys of its own."""
    folder = tmp_path_factory.mktemp("service")
    made = Service(forks, folder, str(folder / "inbox.db"), str(folder / "orders.db"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def client(shared: Service) -> Iterator[httpx.Client]:
    with shared.start() as made:
        yield made


def post(client: httpx.Client, path: str, body: Any, key: str, **more: str) -> httpx.Response:
    return client.post(path, json=body, headers={**key_of(key), **more})


# --- the key ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_missing_key_is_told_and_nothing_is_done(client: httpx.Client, shared: Service, method: str) -> None:
    before = shared.count("plain")
    answer = client.request(method, "/plain", json={})
    assert (answer.status_code, problem_type(answer)) == (400, TYPE + "key-missing")
    assert f"{method} /plain requires the field Idempotency-Key" in answer.json()["detail"]
    assert shared.count("plain") == before


@pytest.mark.parametrize("value", ['""', '"open', '"a", "b"', "two words", '"a"b', "k" * 256])
def test_a_malformed_key_is_told_and_nothing_is_done(client: httpx.Client, shared: Service, value: str) -> None:
    before = shared.count("plain")
    answer = client.post("/plain", json={}, headers={"Idempotency-Key": value})
    assert (answer.status_code, problem_type(answer)) == (400, TYPE + "key-malformed")
    assert shared.count("plain") == before


def test_two_keys_are_refused(client: httpx.Client) -> None:
    answer = client.post("/plain", json={}, headers=[("Idempotency-Key", '"a"'), ("Idempotency-Key", '"b"')])
    assert (answer.status_code, problem_type(answer)) == (400, TYPE + "key-malformed")


def test_a_bare_and_a_quoted_key_are_one(client: httpx.Client) -> None:
    first = client.post("/plain", json={}, headers={"Idempotency-Key": "bare-1"})
    again = client.post("/plain", json={}, headers={"Idempotency-Key": '"bare-1"'})
    assert first.status_code == 201 and again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_other_methods_pass_through(client: httpx.Client, method: str) -> None:
    for _ in range(2):
        answer = client.request(method, "/free", headers={"Idempotency-Key": '"open'})
        assert answer.status_code == 200 and "idempotent-replayed" not in answer.headers


def test_an_optional_key_may_be_missing(client: httpx.Client) -> None:
    assert client.post("/optional", content=b"hello").text == "hello"
    first = client.post("/optional", content=b"hello", headers=key_of("optional"))
    again = client.post("/optional", content=b"hello", headers=key_of("optional"))
    assert (first.text, again.text, again.headers["idempotent-replayed"]) == ("hello", "hello", "true")


# --- replays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/plain", "/order"])
def test_a_replay_is_equal_byte_for_byte(client: httpx.Client, shared: Service, path: str) -> None:
    name = path[1:]
    before = shared.count(name)
    first, *repeats = [post(client, path, {"item": "lamp"}, f"replay-{name}") for _ in range(4)]
    assert first.status_code == 201 and "idempotent-replayed" not in first.headers
    for repeat in repeats:
        assert (repeat.status_code, repeat.content) == (201, first.content)
        assert repeat.headers["content-type"] == first.headers["content-type"]
        assert repeat.headers["idempotent-replayed"] == "true" and "date" in repeat.headers
    assert shared.count(name) == before + 1


def test_only_listed_headers_are_replayed(client: httpx.Client) -> None:
    first, again = (post(client, "/plain", {}, "headers") for _ in range(2))
    assert first.headers["x-not-kept"] == "1" and "secret" in first.headers["set-cookie"]
    assert again.headers["location"] == first.headers["location"] == "/plain/1"
    assert "set-cookie" not in again.headers and "x-not-kept" not in again.headers


def test_another_payload_under_the_key_is_refused(client: httpx.Client, shared: Service) -> None:
    post(client, "/plain", {"a": 1}, "payload")
    before = shared.count("plain")
    for answer in (
        post(client, "/plain", {"a": 2}, "payload"),
        post(client, "/plain?a=1", {"a": 1}, "payload"),
        client.post("/plain", content=b'{"a": 1} ', headers=key_of("payload")),
    ):
        assert (answer.status_code, problem_type(answer)) == (422, TYPE + "key-reused")
    assert shared.count("plain") == before


def test_a_key_of_one_client_path_or_method_never_meets_anothers(client: httpx.Client, shared: Service) -> None:
    before = shared.count("plain")
    for who in ("Bearer one", "Bearer two", "Basic one"):
        assert post(client, "/plain", {"by": who}, "scope", Authorization=who).json()["done"] == {"by": who}
    assert post(client, "/plain", {"by": "nobody"}, "scope").status_code == 201
    assert client.patch("/plain", json={"by": "patch"}, headers=key_of("scope")).json()["done"] == {"by": "patch"}
    assert post(client, "/optional", {}, "scope").status_code == 200
    assert shared.count("plain") == before + 5
    again = post(client, "/plain", {"by": "Bearer one"}, "scope", Authorization="Bearer one")
    assert again.json()["done"] == {"by": "Bearer one"} and again.headers["idempotent-replayed"] == "true"


def test_no_credential_stands_in_the_store(client: httpx.Client, shared: Service) -> None:
    post(client, "/plain", {}, "secret", Authorization="Bearer hunter2")
    assert b"hunter2" not in Path(shared.store).read_bytes() + Path(shared.store + "-wal").read_bytes()


# --- answers that are errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 204, 302, 400, 404, 409, 410, 422, 451])
def test_an_answer_about_the_request_is_stored(client: httpx.Client, shared: Service, status: int) -> None:
    before = shared.count("status")
    first, again = (post(client, "/status", {"status": status}, f"stored-{status}") for _ in range(2))
    assert (first.status_code, again.status_code, again.content) == (status, status, first.content)
    assert "idempotent-replayed" in again.headers and shared.count("status") == before + 1


@pytest.mark.parametrize("status", [401, 403, 408, 425, 429])
def test_a_refusal_before_the_work_is_not_stored(client: httpx.Client, shared: Service, status: int) -> None:
    before = shared.count("status")
    for _ in range(2):
        answer = post(client, "/status", {"status": status}, f"refused-{status}")
        assert answer.status_code == status and "idempotent-replayed" not in answer.headers
    assert shared.count("status") == before + 2


@pytest.mark.parametrize(
    "body", [{"status": 500}, {"status": 503}, {"raises": "error"}, {"raises": "http", "status": 502}]
)
def test_a_plain_handler_that_failed_is_in_doubt(client: httpx.Client, shared: Service, body: dict[str, Any]) -> None:
    before, key = shared.count("status"), f"failed-{sorted(body.items())}"
    assert post(client, "/status", body, key).status_code >= 500
    answer = post(client, "/status", body, key)
    assert (answer.status_code, problem_type(answer)) == (409, UNKNOWN)
    assert shared.count("status") == before + 1


def test_a_handler_that_says_that_nothing_happened_runs_again(client: httpx.Client) -> None:
    for body in ({"nothing": 1, "status": 503}, {"nothing": 1, "raises": "error"}):
        for _ in range(2):
            assert post(client, "/status", body, f"nothing-{len(body)}-{'raises' in body}").status_code >= 500


def test_a_raised_http_error_is_stored_like_an_answered_one(client: httpx.Client) -> None:
    first, again = (post(client, "/status", {"raises": "http", "status": 404}, "raised") for _ in range(2))
    assert (first.status_code, again.status_code) == (404, 404) and "idempotent-replayed" in again.headers


# --- sizes and streams ------------------------------------------------------------------------------------------------


def test_a_request_that_is_too_large_is_refused_before_anything_is_done(client: httpx.Client, shared: Service) -> None:
    def in_parts() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 100_000

    for content in (b"x" * 2_000_000, in_parts()):
        with suppress(httpx.WriteError):  # it may stop listening before all has arrived
            answer = httpx.post(f"{client.base_url}/large", content=content, headers=key_of("too large"))
            assert (answer.status_code, problem_type(answer)) == (413, TYPE + "request-too-large")
    assert shared.count("large") == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [("/large", {}), ("/stream", {"parts": 2000}), ("/stream", {"parts": 1, "type": "text/event-stream"})],
)
def test_an_answer_that_cannot_be_stored_says_so_and_is_never_made_again(
    client: httpx.Client, shared: Service, path: str, body: dict[str, Any]
) -> None:
    name, key = path[1:], f"unstorable-{body}"
    before = shared.count(name)
    first, again = (post(client, path, body, key) for _ in range(2))
    assert (first.status_code, problem_type(first)) == (500, TYPE + "answer-not-stored")
    assert first.json()["answered"] == 200 and "carried out once" in first.json()["detail"]
    assert again.content == first.content and shared.count(name) == before + 1


def test_a_short_stream_is_stored(client: httpx.Client) -> None:
    first, again = (post(client, "/stream", {"parts": 3}, "stream") for _ in range(2))
    assert first.content == again.content == b"x" * 3000 and "idempotent-replayed" in again.headers


def test_a_background_task_runs_after_the_answer_and_once(client: httpx.Client, shared: Service) -> None:
    first, again = (post(client, "/background", {}, "later") for _ in range(2))
    assert first.content == again.content == b"now"
    while shared.count("later") == 0:
        pass
    assert shared.count("later") == 1


# --- transactional handlers that are not ------------------------------------------------------------------------------


def test_a_handler_that_boasts_of_being_transactional_is_told(client: httpx.Client, shared: Service) -> None:
    assert post(client, "/boast", {}, "boast").status_code == 500
    again = post(client, "/boast", {}, "boast")
    assert again.content == b"done" and shared.count("boast") == 1


def test_a_repeat_that_looks_before_it_asks_once_is_not_believed(sqlite_service: Service) -> None:
    client = sqlite_service.start()
    sqlite_service.kill_at("after-change")
    with pytest.raises(httpx.RemoteProtocolError):
        post(client, "/late", {"item": "lamp"}, "late")
    assert sqlite_service.died() == -9
    answer = ask(sqlite_service.start(), "/late", key="late")
    assert (answer.status_code, problem_type(answer)) == (409, UNKNOWN)
    assert "404 before it asked once()" in answer.json()["detail"]


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/plain", "/order"])
def test_an_expired_key_is_a_new_one_and_a_doubt_never_expires(service: Service, path: str) -> None:
    client = service.start()
    ask(client, path)
    service.change("UPDATE surefoot_inbox SET expires_at = 1")
    assert "idempotent-replayed" not in ask(client, path, {"item": "other"}).headers
    assert service.count(path[1:]) == 2
    ask(client, "/status", {"status": 500}, key="doubt")
    service.change("UPDATE surefoot_inbox SET expires_at = 1")
    assert problem_type(ask(client, "/status", {"status": 500}, key="doubt")) == UNKNOWN
    inbox = service.inbox()
    inbox.purge()
    assert [claim.key for claim in inbox.in_doubt()] == ["key-doubt"]
    inbox.close()


def test_a_client_that_leaves_gets_the_answer_later(service: Service) -> None:
    client = service.start()
    (service.folder / "hold").touch()
    with pytest.raises(httpx.ReadTimeout):
        post(httpx.Client(base_url=client.base_url, timeout=0.3), "/plain", {"item": "lamp"}, "1")
    busy = post(client, "/plain", {"item": "lamp"}, "1")
    assert (busy.status_code, problem_type(busy), busy.headers["retry-after"]) == (409, TYPE + "in-progress", "1")
    (service.folder / "hold").unlink()
    answer = ask(client, "/plain")
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (201, "true")
    assert service.count("plain") == 1


def test_a_client_that_leaves_a_stream_gets_the_whole_of_it_later(sqlite_service: Service) -> None:
    """Starlette ends a stream whose client has gone; what runs once has to be seen to its end."""
    client, asked = sqlite_service.start(), {"parts": 3}
    (sqlite_service.folder / "hold").touch()
    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as leaving:
        request = client.build_request("POST", "/stream", json=asked, headers=key_of("1"))
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        leaving.sendall(f"POST /stream HTTP/1.1\r\n{head}\r\n".encode() + request.content)
        while sqlite_service.count("stream") == 0:
            time.sleep(0.005)
    busy = post(client, "/stream", asked, "1")
    assert (busy.status_code, problem_type(busy)) == (409, TYPE + "in-progress")
    (sqlite_service.folder / "hold").unlink()
    answer = ask(client, "/stream", asked)
    assert (answer.content, answer.headers["idempotent-replayed"]) == (b"x" * 3000, "true")
    assert sqlite_service.count("stream") == 1


def test_a_store_that_cannot_be_reached_runs_nothing(sqlite_service: Service) -> None:
    client = sqlite_service.start(store=str(sqlite_service.folder / "missing" / "inbox.db"))
    answer = post(client, "/plain", {}, "1")
    assert (answer.status_code, problem_type(answer)) == (503, TYPE + "store-unavailable")
    assert answer.headers["retry-after"] == "1" and sqlite_service.count("plain") == 0


# --- other ways to protect --------------------------------------------------------------------------------------------


def test_fastapi_routes_are_protected_one_by_one(sqlite_service: Service) -> None:
    client = sqlite_service.start(framework="fastapi")
    for path, status in (("/typed/1", 200), ("/typed/10", 404), ("/typed/x", 422)):
        first, again = (post(client, path, {}, "1") for _ in range(2))
        assert (first.status_code, again.status_code, again.content) == (status, status, first.content)
        assert "idempotent-replayed" in again.headers
    assert sqlite_service.count("typed") == 2
    assert problem_type(client.post("/typed/1")) == TYPE + "key-missing"
    assert client.post("/unprotected").json() == "free" and client.get("/typed/1").status_code == 405
    parameters = client.get("/openapi.json").json()["paths"]["/plain"]["post"]["parameters"]
    assert [parameter["name"] for parameter in parameters] == ["idempotency-key"]


def test_a_decorated_endpoint_is_protected(sqlite_service: Service) -> None:
    client = sqlite_service.start(framework="decorated")
    for path in ("/plain", "/order"):
        first, again = (ask(client, path) for _ in range(2))
        assert (first.status_code, again.content) == (201, first.content) and "idempotent-replayed" in again.headers
    assert sqlite_service.count("plain") == sqlite_service.count("order") == 1


def test_an_endpoint_that_is_protected_twice_is_protected_once(sqlite_service: Service) -> None:
    client = sqlite_service.start(framework="twice")
    first, again = (ask(client, "/plain") for _ in range(2))
    assert (first.status_code, again.content) == (201, first.content) and "idempotent-replayed" in again.headers
    assert sqlite_service.claims() == [("answered", 1)]


# --- bad input --------------------------------------------------------------------------------------------------------

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"store": ":memory:"}, "would forget"),
    ({"store": ""}, "must be the path"),
    ({"store": None}, "must be the path"),
    ({"store": "mysql://localhost/x"}, "store= names 'mysql'"),
    ({"methods": "POST"}, "found the string"),
    ({"methods": ["POST", "GET"]}, "found GET"),
    ({"methods": []}, "must name methods"),
    ({"required": "yes"}, "required= must be a function"),
    ({"transactional": None}, "transactional= must be a function"),
    ({"scope": "client"}, "scope= must be a function"),
    ({"fingerprint": 1}, "fingerprint= must be a function"),
    ({"store_errors": {404}}, "store_errors= must be a function"),
    ({"expires": 86400}, "positive timedelta"),
    ({"request_bytes_max": 0}, "request_bytes_max= must be a whole number"),
    ({"answer_bytes_max": "1 MB"}, "answer_bytes_max= must be a whole number"),
    ({"retry_after": 0.5}, "retry_after= must be a whole number"),
]


async def nothing(scope: Any, receive: Any, send: Any) -> None: ...


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS, ids=[f"{o}" for o, _ in BAD_OPTIONS])
def test_options_that_cannot_work_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        IdempotencyMiddleware(nothing, **{"store": tmp_path / "inbox.db", **options})
    assert list(tmp_path.iterdir()) == []


def test_resolving_what_is_not_there_or_not_said_is_refused(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox.db")
    with pytest.raises(UsageError, match="there is no call under key 'k'"):
        inbox.resolve("k", did_not_happen=True)
    with pytest.raises(UsageError, match="say either"):
        inbox.resolve("k")
    with pytest.raises(UsageError, match="say either"):
        inbox.resolve("k", happened=Answer(status=200), did_not_happen=True)
    for answer, said in (
        ({"status": 200}, "must be an Answer"),
        (Answer(status=99), "200 to 599"),
        (Answer(status=200, headers=(("X-Y", "1"),)), "lower-case"),
        (Answer(status=200, headers=(("x", "a\r\nb"),)), "one line"),
    ):
        with pytest.raises(UsageError, match=said):
            inbox.resolve("k", happened=answer)
    inbox.close()
    with pytest.raises(Exception, match="is closed"):
        inbox.purge()


async def test_a_lost_run_of_a_handler_that_is_no_longer_transactional_needs_a_person(tmp_path: Path) -> None:
    asked = Ask("http:POST /orders x", "k", "digest", True, 60.0)
    first = Inbox(tmp_path / "inbox.db")
    assert isinstance(await first.claim(asked), Run)
    assert first.in_doubt() == []
    first.close()
    second = Inbox(tmp_path / "inbox.db")
    assert second.in_doubt() == []
    assert isinstance(await second.claim(asked._replace(transactional=False)), Doubt)
    assert [claim.key for claim in second.in_doubt()] == ["k"]
    assert second.resolve("k", did_not_happen=True).standing is Standing.RELEASED
    assert isinstance(await second.claim(asked._replace(transactional=False)), Run)
    second.close()


async def test_a_request_that_is_cancelled_while_it_claims_gives_its_claim_back(tmp_path: Path) -> None:
    asked = Ask("http:POST /orders x", "k", "digest", False, 60.0)
    inbox, other = Inbox(tmp_path / "inbox.db"), Inbox(tmp_path / "inbox.db")
    assert inbox.in_doubt() == other.in_doubt() == []
    with closing(sqlite3.connect(tmp_path / "inbox.db", isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(inbox.claim(asked))
        await asyncio.sleep(0.05)
        task.cancel()
        locking.execute("ROLLBACK")
    with pytest.raises(asyncio.CancelledError):
        await task
    while not isinstance(await other.claim(asked), Run):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    inbox.close()
    other.close()


def test_an_endpoint_without_protection_has_no_call() -> None:
    with pytest.raises(UsageError, match="no IdempotencyMiddleware is before this endpoint"):
        idempotency({"type": "http"})
    with pytest.raises(UsageError, match="protects a function"):
        idempotent(store="inbox.db")(Service)


def test_a_lease_must_be_a_duration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="timedelta"):
        Inbox(tmp_path / "inbox.db", lease=None)
