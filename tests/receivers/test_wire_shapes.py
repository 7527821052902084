"""Each service's own client package reads a twin as it reads the service: objects, lists, pages and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import botocore.exceptions
import github
import httpx2
import pagerduty
import pytest
import slack_sdk.errors
import stripe
import zenpy.lib.exception
from python_http_client.exceptions import BadRequestsError
from sendgrid.helpers.mail import CustomArg, Mail
from twilio.base.exceptions import TwilioRestException
from zenpy.lib.api_objects import Ticket

from surefoot import receivers
from surefoot.testing.twins import Said, Sort, Twin, wire
from surefoot.testing.twins.of_receiver import behaviour_of
from tests.receivers import wire_clients as clients

DAY = 86400.0
SERVICES = ("stripe", "zendesk", "github", "slack", "sendgrid", "pagerduty", "twilio", "s3")


@contextmanager
def twin_of(module: Any, **lies: Any) -> Iterator[Twin]:
    with Twin(replace(module.BEHAVIOUR, **lies), wire=module.Wire()) as twin:
        yield twin


# --- Stripe -----------------------------------------------------------------------------------------------------------


def refund(client: stripe.StripeClient, key: str, amount: int = 40) -> stripe.Refund:
    fields: Any = {"charge": "ch_1", "amount": amount, "metadata": {"intent": key}}
    return client.v1.refunds.create(fields, {"idempotency_key": key})


def test_stripe_replays_a_known_key_and_says_so() -> None:
    with twin_of(wire.stripe) as twin:
        client = clients.stripe_client(twin.url)
        first, again = refund(client, "k1"), refund(client, "k1")
        assert (first.id, first.amount, first.metadata["intent"]) == (again.id, 40, "k1")
        assert again.last_response is not None and again.last_response.headers["Idempotent-Replayed"] == "true"
        assert len(twin.acts()) == 1
        twin.advance(DAY + 1)
        assert refund(client, "k1").id != first.id


def test_stripe_gives_one_error_type_to_another_payload_and_to_a_running_request() -> None:
    with twin_of(wire.stripe) as twin:
        client = clients.stripe_client(twin.url, max_network_retries=0)
        refund(client, "k1")
        with pytest.raises(stripe.IdempotencyError) as changed:
            refund(client, "k1", 41)
        assert (changed.value.http_status, changed.value.code) == (400, None)
        twin.next("late")
        hasty = clients.stripe_client(twin.url, max_network_retries=0, http_client=stripe.RequestsClient(timeout=0.05))
        with pytest.raises(stripe.APIConnectionError):
            refund(hasty, "k2")
        with pytest.raises(stripe.APIError) as running:  # of a 409 the package keeps the code in the body only
            refund(client, "k2")
        assert (running.value.http_status, running.value.json_body["error"]["code"]) == (409, "idempotency_key_in_use")
        twin.release()
        assert len(twin.acts()) == 2


def test_stripe_stores_a_500_and_gives_it_again() -> None:
    with twin_of(wire.stripe) as twin:
        client = clients.stripe_client(twin.url, max_network_retries=0)
        twin.next("error_after")
        for _ in range(2):
            with pytest.raises(stripe.APIError) as error:
                refund(client, "k1")
            assert error.value.http_status == 500
        assert error.value.headers is not None and error.value.headers["idempotent-replayed"] == "true"
        assert len(twin.acts()) == 1


def test_stripe_lists_page_by_page_from_an_instant_on() -> None:
    with twin_of(wire.stripe) as twin:
        client = clients.stripe_client(twin.url)
        old = refund(client, "k0")
        twin.advance(100)
        made = [refund(client, f"k{number}").id for number in range(1, 6)]
        listed = client.v1.refunds.list({"created": {"gte": old.created + 50}, "limit": 2})
        assert [found.id for found in listed.auto_paging_iter()] == made[::-1]
        assert client.v1.refunds.retrieve(made[0]).id == made[0]


# --- Zendesk ----------------------------------------------------------------------------------------------------------


def test_zendesk_says_whether_it_knew_the_key() -> None:
    with twin_of(wire.zendesk) as twin:
        client = clients.zendesk_client(twin.url)
        client.tickets.session.headers["Idempotency-Key"] = "k1"
        answers: list[str | None] = []
        client.tickets.session.hooks["response"] = lambda answer, **_: answers.append(
            answer.headers.get("x-idempotency-lookup")
        )
        made = [client.tickets.create(Ticket(subject="s", description="d", external_id="e")) for _ in range(2)]
        assert answers == ["miss", "hit"] and made[0].ticket.id == made[1].ticket.id
        with pytest.raises(zenpy.lib.exception.APIException, match="IdempotentRequestError"):
            client.tickets.create(Ticket(subject="other", description="d"))
        assert len(twin.acts()) == 1


def test_zendesk_lists_by_external_id_at_once_and_its_search_lags() -> None:
    with twin_of(wire.zendesk) as twin:
        client = clients.zendesk_client(twin.url)
        for number in range(3):
            client.tickets.create(Ticket(subject=f"s{number}", description="d", external_id="e"))
        assert [ticket.subject for ticket in client.tickets(external_id="e")] == ["s0", "s1", "s2"]
        assert len(list(client.search(external_id="e", type="ticket"))) == 0
        twin.advance(61)
        assert len(list(client.search(external_id="e", type="ticket"))) == 3


# --- GitHub -----------------------------------------------------------------------------------------------------------


def test_github_opens_a_second_issue_and_lists_both_page_by_page() -> None:
    with twin_of(wire.github) as twin:
        client = clients.github_client(twin.url, seconds_between_writes=0, seconds_between_requests=0)
        client.per_page = 2
        repository = client.get_repo("acme/app")
        numbers = [repository.create_issue("t", body="<!-- k1 -->").number for _ in range(3)]
        since = datetime.fromtimestamp(twin.clock.now() - 5, UTC)
        assert [issue.number for issue in repository.get_issues(state="all", since=since)] == numbers[::-1] == [3, 2, 1]
        assert not list(repository.get_issues(since=since.replace(year=since.year + 1)))
        twin.finish("issues_2")
        assert [issue.number for issue in repository.get_issues()] == [3, 1]


def test_githubs_secondary_limit_looks_like_a_refusal_but_for_its_words() -> None:
    with twin_of(wire.github) as twin:
        twin.next("limited")
        repository = clients.github_client(twin.url, retry=None).get_repo("acme/app")
        with pytest.raises(github.RateLimitExceededException) as limited:
            repository.create_issue("t")
        assert limited.value.status == 403 and limited.value.headers is not None
        assert limited.value.headers["retry-after"] == "30" and not twin.acts()


# --- Slack ------------------------------------------------------------------------------------------------------------


def test_slack_posts_twice_and_shows_metadata_only_when_asked() -> None:
    with twin_of(wire.slack) as twin:
        client = clients.slack_client(twin.url)
        mark: Any = {"event_type": "intent", "event_payload": {"key": "k1"}}
        stamps = [client.chat_postMessage(channel="C1", text="hi", metadata=mark)["ts"] for _ in range(3)]
        assert len(set(stamps)) == 3
        shown = client.conversations_history(channel="C1", include_all_metadata=True, limit=2)
        assert [message["ts"] for message in shown["messages"]] == stamps[:0:-1] and shown["has_more"]
        assert shown["messages"][0]["metadata"] == mark
        pages = list(client.conversations_history(channel="C1", limit=2))
        assert "metadata" not in pages[0]["messages"][0] and len(pages) == 2
        assert not client.conversations_history(channel="C1", oldest=stamps[-1])["messages"]
        assert not client.conversations_history(channel="C2")["messages"]


def test_slack_hides_an_error_after_the_act_inside_a_200() -> None:
    with twin_of(wire.slack) as twin:
        client = clients.slack_client(twin.url)
        twin.next("error_after", "refused", "limited")
        for status, code in ((200, "internal_error"), (200, "channel_not_found"), (429, "ratelimited")):
            with pytest.raises(slack_sdk.errors.SlackApiError) as error:
                client.chat_postMessage(channel="C1", text="hi")
            assert (error.value.response.status_code, error.value.response["error"]) == (status, code)
        assert error.value.response.headers["Retry-After"] == "30" and len(twin.acts()) == 1


# --- SendGrid ---------------------------------------------------------------------------------------------------------


def test_sendgrid_accepts_twice_and_its_activity_feed_lags() -> None:
    with twin_of(wire.sendgrid) as twin:
        client = clients.sendgrid_client(twin.url)
        mail = Mail("agent@acme.test", "ann@customer.test", "Hello", plain_text_content="Hi")
        mail.add_custom_arg(CustomArg("intent", "k1"))
        answers = [client.send(mail) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        asked = {"query": "unique_args['intent']=\"k1\"", "limit": 10}
        assert client.client.messages.get(query_params=asked).to_dict == {"messages": []}
        twin.advance(6)
        rows = client.client.messages.get(query_params=asked).to_dict["messages"]
        assert [row["msg_id"].split(".")[0] for row in rows] == [a.headers["X-Message-Id"] for a in answers][::-1]
        assert rows[0]["to_email"] == "ann@customer.test" and rows[0]["subject"] == "Hello"
        with pytest.raises(BadRequestsError):
            client.client.messages.get(query_params={"limit": 10})


# --- PagerDuty --------------------------------------------------------------------------------------------------------


def test_pagerduty_merges_while_the_incident_is_open_and_pages_again_afterwards() -> None:
    with twin_of(wire.pagerduty) as twin:
        events, rest = clients.pagerduty_events(twin.url), clients.pagerduty_rest(twin.url)
        for _ in range(2):
            assert events.trigger("disk full", "db1", dedup_key="k1") == "k1"
        assert len(twin.acts()) == 1
        events.resolve("k1")
        events.trigger("disk full", "db1", dedup_key="k1")
        asked = {"incident_key": "k1", "date_range": "all"}
        found = [incident["status"] for incident in rest.iter_all("incidents", params=asked)]
        assert found == ["resolved", "triggered"]
        with pytest.raises(pagerduty.HttpError, match="invalid event"):
            events.acknowledge("k1")


# --- Twilio -----------------------------------------------------------------------------------------------------------


def test_twilio_sends_twice_and_lists_whole_days() -> None:
    with twin_of(wire.twilio) as twin:
        client = clients.twilio_client(twin.url)
        sids = [client.messages.create(to="+15550001", from_="+15550000", body="hi").sid for _ in range(3)]
        late_today = datetime.fromtimestamp(twin.clock.now(), UTC).replace(hour=23, minute=59)
        listed = client.messages.list(to="+15550001", date_sent_after=late_today, page_size=2)
        assert [message.sid for message in listed] == sids[::-1] and listed[0].body == "hi"
        assert not client.messages.list(to="+15550002")
        twin.next("refused")
        with pytest.raises(TwilioRestException) as refused:
            client.messages.create(to="+1", from_="+15550000", body="hi")
        assert (refused.value.status, refused.value.code) == (400, 21211)


# --- S3 ---------------------------------------------------------------------------------------------------------------


def test_s3_refuses_a_second_conditional_put_and_shows_whose_it_is() -> None:
    with twin_of(wire.s3) as twin:
        client = clients.s3_client(twin.url)
        put = {"Bucket": "b", "Key": "r/1.txt", "IfNoneMatch": "*"}
        with pytest.raises(botocore.exceptions.ClientError, match="404"):
            client.head_object(Bucket="b", Key="r/1.txt")
        made = client.put_object(**put, Body=b"first", Metadata={"owner": "k1"})
        with pytest.raises(botocore.exceptions.ClientError) as exists:
            client.put_object(**put, Body=b"other", Metadata={"owner": "k2"})
        assert exists.value.response["Error"]["Code"] == "PreconditionFailed"
        assert exists.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
        head = client.head_object(Bucket="b", Key="r/1.txt")
        assert (head["Metadata"], head["ETag"], head["ContentLength"]) == ({"owner": "k1"}, made["ETag"], 5)
        assert client.get_object(Bucket="b", Key="r/1.txt")["Body"].read() == b"first"
        assert len(twin.acts()) == 1


# --- what is not understood -------------------------------------------------------------------------------------------

NONSENSE = [
    ("GET", "/v1/refunds/xyz"),
    ("GET", "/v1/refunds?created[gte]=soon&limit=many&starting_after=zzz"),
    ("DELETE", "/v1/refunds"),
    ("GET", "/api/v2/search.json?query=anything"),
    ("POST", "/api/v2/users"),
    ("GET", "/repos/acme/app/issues?since=never&page=x"),
    ("PATCH", "/repos/acme"),
    ("POST", "/api/conversations.history?oldest=x&cursor=y"),
    ("POST", "/api/none.such"),
    ("GET", "/v3/messages?query=subject"),
    ("POST", "/v2/enqueue"),
    ("GET", "/2010-04-01/Accounts/AC/Messages.json?DateSent>=today"),
    ("GET", "/2010-04-01/Calls"),
    ("GET", "/bucket"),
    ("POST", "/"),
]


@pytest.mark.parametrize("name", SERVICES)
def test_a_call_that_is_not_understood_is_answered_and_does_nothing(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with twin_of(getattr(wire, name)) as twin, httpx2.Client(base_url=twin.url, verify=False) as client:
        for method, path in NONSENSE:
            answer = client.request(method, path, content=b"\xff not json" if method == "POST" else None)
            assert 200 <= answer.status_code < 600
        assert not twin.acts()
    assert not capfd.readouterr().err


@pytest.mark.parametrize("name", SERVICES)
def test_a_wire_behaves_as_the_catalog_says(name: str) -> None:
    own = getattr(wire, name).BEHAVIOUR
    told = behaviour_of(receivers.get(own.name))
    assert set(told.operations.values()) <= set(own.operations.values())
    if Sort.LOOKUP_ONLY not in own.operations.values():
        assert (own.window_seconds, own.late, own.in_flight) == (told.window_seconds, told.late, told.in_flight)
    same = ("compares_payload", "stores_refusals", "stores_errors", "shows")
    assert [getattr(own, fact) for fact in same] == [getattr(told, fact) for fact in same]
    for said in (Said.IN_FLIGHT, Said.CHANGED_PAYLOAD, Said.EXISTS):
        if said in told.codes:
            assert own.code(said)[0] == told.code(said)[0] and own.code(said)[1] in ("", told.code(said)[1])
