"""What answers say by the contract, read from the response objects and exceptions of real client libraries."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from surefoot import Attempt, Exists, NotSent, Refused, UsageError
from surefoot.core.contract import Contract, Kind, answers, keyed, natural
from surefoot.core.effect import Effect, Status
from surefoot.core.values import Codec
from surefoot.effects.classify import answered, classify_error, read
from surefoot.effects.reading import HttpAnswer, Reading, Says, Unsuccessful
from tests.effects.arrivals import answer, serving
from tests.effects.clients import CALLS, an_attempt, quietly

NAMED = Contract(
    kind=Kind.KEYED,
    window_seconds=3600.0,
    answers=answers(
        landed=("ALREADY_DONE",),
        exists=(412, "already_exists", "ALREADY_EXISTS"),
        in_flight=(409, "IDEMPOTENCY_CONCURRENT_REQUEST"),
        changed_payload=("key_reused", "704"),
        spent=("PREVIOUS_ATTEMPT_FAILED",),
        expired=("key_too_old",),
        not_processed=("try_later", "21611"),
        refused=(422, "channel_not_found", "invalid_request", "21211"),
    ),
)


def an_attempt_under(contract: Contract) -> Attempt:
    """An attempt whose record holds this contract."""
    names = {"key": "f" * 64, "namespace": "", "name": "pay", "identity": "order:1", "run": "", "slot": ""}
    request = {"request": b"{}", "request_digest": b"d", "sent_key": "key-1"}
    times = {"timeout_seconds": 20.0, "budget_seconds": 900.0}
    record = Effect(**names, **request, **times, contract=contract, status=Status.ATTEMPTED)
    return Attempt.of(record)


def get_with_requests(url: str) -> Any:
    import requests

    return requests.post(url, timeout=20)


def get_with_httpx(url: str) -> Any:
    import httpx

    return httpx.post(url, timeout=20)


def get_with_urllib3(url: str) -> Any:
    import urllib3

    return urllib3.PoolManager(retries=False, timeout=20).request("POST", url)


def get_with_aiohttp(url: str) -> Any:
    import aiohttp

    async def call() -> Any:
        async with aiohttp.ClientSession() as session, session.post(url) as response:
            await response.read()
            return response

    return asyncio.run(call())


GETTERS = (get_with_requests, get_with_httpx, get_with_urllib3, get_with_aiohttp)

MEANINGS: list[tuple[int, object, Says, int | str | None]] = [
    (200, {"id": "T-1"}, Says.LANDED, None),
    (201, None, Says.LANDED, None),
    (200, {"ok": True, "error": None, "errors": []}, Says.LANDED, None),
    (200, {"ok": False, "error": "channel_not_found"}, Says.REFUSED, "channel_not_found"),
    (200, {"ok": False, "error": "internal_error"}, Says.IN_DOUBT, None),
    (200, {"errors": [{"message": "timeout"}]}, Says.IN_DOUBT, None),
    (
        200,
        {"data": {"pay": {"userErrors": [{"code": "IDEMPOTENCY_CONCURRENT_REQUEST"}]}}},
        Says.IN_FLIGHT,
        "IDEMPOTENCY_CONCURRENT_REQUEST",
    ),
    (200, {"errors": [{"extensions": {"code": "PREVIOUS_ATTEMPT_FAILED"}}]}, Says.SPENT, "PREVIOUS_ATTEMPT_FAILED"),
    (200, {"name": "key_reused", "type": "try_later", "code": "channel_not_found"}, Says.LANDED, None),
    (409, {"error": {"code": "ALREADY_DONE"}}, Says.LANDED, "ALREADY_DONE"),
    (409, {"error": {"type": "key_reused"}}, Says.CHANGED_PAYLOAD, "key_reused"),
    (409, {"errorCode": 704}, Says.CHANGED_PAYLOAD, "704"),
    (409, {"message": "busy"}, Says.IN_FLIGHT, 409),
    (409, {"error": {"status": "ALREADY_EXISTS"}}, Says.EXISTS, "ALREADY_EXISTS"),
    (412, None, Says.EXISTS, 412),
    (400, {"name": "key_too_old"}, Says.EXPIRED, "key_too_old"),
    (400, {"message": "of what, it does not say"}, Says.IN_DOUBT, None),
    (503, {"code": "try_later"}, Says.NOT_PROCESSED, "try_later"),
    (503, {"code": "another"}, Says.IN_DOUBT, None),
    (500, None, Says.IN_DOUBT, None),
    (422, {"error": "invalid"}, Says.REFUSED, 422),
    (302, None, Says.IN_DOUBT, None),
]


@pytest.mark.parametrize(("status", "body", "kind", "code"), MEANINGS)
def test_an_answer_is_what_the_contract_names_it(
    status: int, body: object, kind: Says, code: int | str | None, tmp_path: Path
) -> None:
    attempt = an_attempt_under(NAMED)
    with serving(tmp_path, answer(status, body)) as server:
        for get in GETTERS:
            found = attempt.classify(get(f"{server.url}/things"))
            assert (found.kind, found.code, found.status, found.body) == (kind, code, status, body), get.__name__


RAISED: list[tuple[str, int, object, Says]] = [
    ("stripe StripeClient payment_intents.create", 409, {"error": {"type": "key_reused"}}, Says.CHANGED_PAYLOAD),
    ("stripe StripeClient payment_intents.create", 400, {"error": {"code": "ALREADY_DONE"}}, Says.LANDED),
    ("PyGithub create_issue", 422, {"message": "no", "errors": [{"code": "already_exists"}]}, Says.EXISTS),
    ("PyGithub create_issue", 500, {"message": "no"}, Says.IN_DOUBT),
    ("slack_sdk chat_postMessage", 200, {"ok": False, "error": "channel_not_found"}, Says.REFUSED),
    ("slack_sdk chat_postMessage", 200, {"ok": False, "error": "fatal_error"}, Says.IN_DOUBT),
    ("openai responses.create", 400, {"error": {"code": "invalid_request", "message": "no"}}, Says.REFUSED),
    ("openai responses.create", 409, {"error": {"message": "busy"}}, Says.IN_FLIGHT),
    ("twilio messages.create", 400, {"code": 21211, "message": "no", "status": 400}, Says.REFUSED),
    ("twilio messages.create", 503, {"code": 21611, "message": "no", "status": 503}, Says.NOT_PROCESSED),
    ("sendgrid mail.send", 503, {"errors": [{"code": "try_later"}]}, Says.NOT_PROCESSED),
    ("boto3 sesv2.send_email", 400, {"__type": "com.amazonaws.ses#key_too_old"}, Says.EXPIRED),
    ("urllib.request POST", 409, {"code": "key_reused"}, Says.CHANGED_PAYLOAD),
    ("requests.post", 409, {"code": "key_reused"}, Says.CHANGED_PAYLOAD),
    ("httpx.AsyncClient.post", 409, {"code": "key_reused"}, Says.CHANGED_PAYLOAD),
    ("aiohttp.ClientSession POST", 409, {"code": "not seen, aiohttp leaves it out"}, Says.IN_FLIGHT),
]


@pytest.mark.parametrize(("call", "status", "body", "kind"), RAISED)
def test_an_answer_that_a_package_raises_means_the_same(
    call: str, status: int, body: object, kind: Says, tmp_path: Path
) -> None:
    library, made = CALLS[call]
    options = an_attempt(timeout=20.0).options(library) if library else {}
    with serving(tmp_path, answer(status, body)) as server:
        error = quietly(made, server.url, options)
    assert isinstance(error, Exception)
    found = an_attempt_under(NAMED).classify(error)
    assert (found.kind, found.status) == (kind, status)


def test_a_codes_place_can_be_named() -> None:
    body = {"result": {"why": "invalid_request"}, "code": "try_later", "error": {"code": "key_reused"}}
    contract = msgspec.structs.replace(NAMED, code_at=("result.why",))
    assert read(HttpAnswer(status=400, body=body), contract).kind is Says.REFUSED
    assert read(HttpAnswer(status=200, body={"result": {"why": "odd"}}), contract).kind is Says.IN_DOUBT
    assert read(HttpAnswer(status=200, body={"result": {"why": 0}}), contract).kind is Says.LANDED


def test_headers_tell_when_to_ask_again_and_what_is_a_repeat() -> None:
    def found(**headers: str) -> Reading:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return read(HttpAnswer(status=200, headers=named), NAMED)

    sent = "Wed, 21 Oct 2026 07:28:00 GMT"
    assert found(retry_after="3").retry_after == 3.0
    assert found(retry_after="Wed, 21 Oct 2026 07:28:30 GMT", date=sent).retry_after == 30.0
    assert found(retry_after="soon").retry_after is None and found().retry_after is None
    assert found(idempotent_replayed="true").replayed and not found(idempotent_replayed="false").replayed


def test_an_unread_body_is_not_taken_for_a_success_where_only_it_could_tell(tmp_path: Path) -> None:
    import httpx

    with serving(tmp_path, answer(200, {"error": "channel_not_found"})) as server, httpx.Client() as client:
        response = client.send(client.build_request("POST", f"{server.url}/things"), stream=True)
        unread = an_attempt_under(NAMED).classify(response)
        assert an_attempt_under(keyed(60)).classify(response).kind is Says.LANDED
        response.read()
        assert an_attempt_under(NAMED).classify(response).kind is Says.REFUSED
    assert unread.kind is Says.IN_DOUBT and "was not read" in unread.reason


def test_check_returns_a_success_and_raises_anything_else_with_its_reading(tmp_path: Path) -> None:
    attempt = an_attempt_under(NAMED)
    with serving(tmp_path, answer(200, {"id": 1}), answer(409, {"code": "ALREADY_DONE"})) as server:
        response = get_with_httpx(server.url)
        assert attempt.check(response) is response
        with pytest.raises(Unsuccessful, match="says landed: status 409, ALREADY_DONE") as caught:
            attempt.check(get_with_httpx(server.url))
    assert attempt.classify(caught.value) == caught.value.reading
    with pytest.raises(UsageError, match="expected a response or an exception"):
        attempt.classify({"id": 1})


def test_what_exists_is_ours_only_if_it_carries_our_key() -> None:
    attempt = an_attempt_under(natural())

    def found(body: object) -> Says:
        return read(HttpAnswer(status=409, body=body), natural(), (attempt.key, attempt.effect)).kind

    assert found({"existing": [{"external_id": "key-1"}]}) is Says.LANDED
    assert found({"message": "key-1 exists already", "id": "order:1", "key-1": "x"}) is Says.EXISTS
    assert found({"errors": [{"input": {"external_id": "key-1"}}], "request": "key-1"}) is Says.EXISTS
    assert found(None) is Says.EXISTS
    assert read(HttpAnswer(status=409), natural(owned=True)).kind is Says.LANDED


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Refused("no", code="x"), Says.REFUSED),
        (NotSent("no"), Says.NOT_SENT),
        (Exists(), Says.EXISTS),
        (ConnectionRefusedError(), Says.NOT_SENT),
        (ConnectionResetError(), Says.IN_DOUBT),
        (TimeoutError(), Says.IN_DOUBT),
        (KeyError("id"), Says.IN_DOUBT),
    ],
)
def test_exceptions_of_our_own_and_of_python(error: Exception, kind: Says) -> None:
    assert classify_error(error, NAMED).kind is kind


def test_a_request_that_boto3_refuses_to_make_was_not_sent(tmp_path: Path) -> None:
    import boto3

    client = boto3.client("sqs", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    with pytest.raises(Exception, match="Missing required parameter") as caught:
        client.send_message(MessageBody="no queue")
    assert classify_error(caught.value, NAMED).kind is Says.NOT_SENT


def test_a_status_that_was_handled_before_says_nothing_about_what_broke_later() -> None:
    class NotFound(Exception):
        status_code = 422

    def look_then_post() -> None:
        try:
            raise NotFound
        except NotFound:
            raise TimeoutError("the post was not answered")  # noqa: B904

    def look_then_stumble() -> None:
        try:
            raise NotFound
        except NotFound:
            raise RuntimeError("nobody knows what was sent by then")  # noqa: B904

    def wrap() -> None:
        try:
            raise NotFound
        except NotFound as error:
            raise RuntimeError("could not pay") from error

    for act, kind in ((look_then_post, Says.IN_DOUBT), (look_then_stumble, Says.IN_DOUBT), (wrap, Says.REFUSED)):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            act()
        assert classify_error(caught.value, NAMED).kind is kind


class Ticket(msgspec.Struct):
    id: str


ADOPTED: list[tuple[Any, object, bytes]] = [
    (Ticket, {"id": "T-1", "was": "here"}, b'{"id":"T-1"}'),
    (Ticket, {"error": "done before"}, b""),
    (Ticket, None, b""),
    (Ticket | None, {"error": "done before"}, b"null"),
    (None, {"error": "done before"}, b"null"),
    (dict[str, str], {"id": "T-1"}, b'{"id":"T-1"}'),
    (Any, {"id": "T-1"}, b'{"id":"T-1"}'),
    (Any, None, b""),
]


@pytest.mark.parametrize(("hint", "body", "receipt"), ADOPTED)
def test_the_body_of_an_answer_that_says_landed_is_the_receipt_if_it_fits(
    hint: Any, body: object, receipt: bytes
) -> None:
    found = answered(Reading(kind=Says.LANDED, body=body), Codec(hint, "a receipt"))
    assert (found.kind, found.receipt) == ("landed", receipt)


@pytest.mark.parametrize("kind", Says)
def test_every_reading_is_recorded_in_the_words_of_the_core(kind: Says) -> None:
    words = {Says.NOT_SENT: "unsent", Says.IN_DOUBT: "unknown"}
    assert answered(Reading(kind=kind), Codec(None, "a receipt")).kind == words.get(kind, kind.value)
