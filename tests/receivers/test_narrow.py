"""Narrowing and defining: what may be said, what it does to the contract, and what is refused and how."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from surefoot import UsageError, effect, receivers
from surefoot.core.contract import Bound, Kind, Margins, Meaning, Place
from surefoot.receivers import Action, Answer, Do, Key, Lookup, LookupMargins, Replay, Token, Window

HEADER = Key(place="header", name="Acme-Key")  # type: ignore[arg-type]
LIST = Lookup(how="GET /orders", by="reference", kind="list", absence=True)  # type: ignore[arg-type]


def acme(**facts: Any) -> receivers.Receiver:
    return receivers.define("acme.orders", **({"class_": "key_replay", "stakes": "money", "key": HEADER} | facts))


# --- with_ ------------------------------------------------------------------------------------------------------


def test_an_operation_brings_its_own_window_and_key() -> None:
    paypal = receivers.get("paypal.other")
    assert paypal.contract.protected_seconds == 0
    assert paypal.with_(operation="payouts").contract.window_seconds == 30 * 86400
    assert paypal.with_(operation="orders_v1").contract.bound is Bound.FOR_EVER
    update = receivers.get("google.sheets").with_(operation="update")
    assert (receivers.get("google.sheets").contract.kind, update.contract.kind) == (Kind.LOOKUP, Kind.NATURAL)


def test_a_setting_changes_what_the_account_can_promise() -> None:
    table = receivers.get("servicenow.table")
    assert table.contract.kind is Kind.LOOKUP and table.with_(setting="coalesce").contract.kind is Kind.NATURAL
    paypal = receivers.get("paypal.orders.v2")
    with pytest.raises(UsageError, match="longer than the documented 21600 s"):
        paypal.with_(window=timedelta(hours=72))
    assert paypal.with_(setting="longer_window", window=timedelta(hours=72)).contract.window_seconds == 259200


def test_a_window_that_the_owner_knows_is_relied_on() -> None:
    bus = receivers.get("azure.servicebus").with_(window=timedelta(days=7)).contract
    assert (bus.window_seconds, bus.protected_seconds) == (604800, 302400)
    assert receivers.get("stripe.v1").with_(window=3600).contract.protected_seconds == 1800
    told = receivers.get("modern_treasury.payment_orders").with_(window=timedelta(hours=24)).contract
    assert (told.kind, told.protected_seconds) == (Kind.KEYED, 43200)
    assert receivers.get("redis.set_nx").with_(window=3600).contract.kind is Kind.KEYED


def test_an_unknown_window_counts_for_300_seconds_once_the_owner_says_that_it_can_be_taken_back() -> None:
    discord = receivers.get("discord.create_message")
    assert discord.contract.protected_seconds == 0
    assert discord.with_(stakes="reversible").contract.protected_seconds == 300
    message = discord.with_(stakes="message")
    assert message.contract.protected_seconds == 0
    given = discord.with_(margins=Margins(unknown_window_seconds=45.0)).with_(stakes="reversible")
    assert given.contract.protected_seconds == 45, "a number of the owner's own stays"
    own = discord.with_(margins=Margins(unknown_window_seconds=60.0), stakes="reversible")
    assert own.contract.protected_seconds == 60
    assert receivers.get("aws.ec2.run_instances").contract.protected_seconds == 0, (
        "the catalog's own word is not enough"
    )


def test_a_consumer_that_drops_repeats_makes_a_repeat_harmless() -> None:
    for name in ("aws.sqs.fifo", "aws.sqs.standard", "gcp.pubsub", "kafka.idempotent_producer"):
        assert receivers.get(name).with_(consumer_drops_repeats=True).contract.kind is Kind.NATURAL
    with pytest.raises(UsageError, match=r"stripe\.v1.*consumer_drops_repeats.*at_least_once=True"):
        receivers.get("stripe.v1").with_(consumer_drops_repeats=True)


def test_whoever_accepts_duplicates_says_so() -> None:
    smtp = receivers.get("smtp")
    assert not smtp.contract.at_least_once
    accepted = smtp.with_(at_least_once=True).contract
    assert accepted.kind is Kind.OPAQUE and accepted.at_least_once


def test_the_lookup_to_use_is_chosen_by_its_field() -> None:
    stripe = receivers.get("stripe.v1")
    assert (stripe.contract.asks_by, stripe.contract.lag_seconds) == ("metadata", 10)
    searched = stripe.with_(asks="metadata.search").contract
    assert (searched.asks_by, searched.lag_seconds, searched.absence) == ("metadata.search", 180, False)
    whatsapp = receivers.get("whatsapp.cloud_api")
    assert whatsapp.contract.kind is Kind.OPAQUE
    asked = whatsapp.with_(asks="biz_opaque_callback_data").contract
    assert (asked.kind, asked.lag_seconds, asked.absence) == (Kind.LOOKUP, 900, False)
    assert stripe.with_(lookup_margins=LookupMargins(floor_seconds=60)).contract.lag_seconds == 60


def test_an_empty_answer_counts_when_the_owner_says_so_and_the_lookup_shows_all() -> None:
    stripe = receivers.get("stripe.v1")
    assert not stripe.contract.absence
    assert stripe.with_(past="lookup_then_resend").contract.absence
    with pytest.raises(UsageError, match="acts on an empty answer"):
        stripe.with_(past="lookup_then_resend", asks="metadata.search")


def test_a_grace_that_is_set_is_relied_on_by_half() -> None:
    auth0 = receivers.get("oauth.auth0")
    assert auth0.contract.kind is Kind.OPAQUE
    assert auth0.with_(grace_seconds=60).contract.protected_seconds == 30
    rotating = receivers.get("oauth.salesforce").with_(token=Token(mode="strict"))  # type: ignore[arg-type]
    assert rotating.contract.kind is Kind.OPAQUE


def test_the_object_is_ours_when_its_id_is_our_key() -> None:
    assert not receivers.get("kubernetes.create").contract.owned
    assert receivers.get("kubernetes.create").with_(owned=True).contract.owned


def test_narrowing_leaves_the_catalog_as_it_was() -> None:
    before = receivers.get("stripe.v1").contract
    receivers.get("stripe.v1").with_(window=60, scope=("account",), code_at=("error.code",), checked="2027-01-31")
    assert receivers.get("stripe.v1").contract == before
    assert receivers.get("stripe.v1").with_() == receivers.get("stripe.v1")


def test_an_effect_takes_a_receiver_as_its_contract() -> None:
    @effect(receivers.get("stripe.v1"), name="charge by receiver", identity="order:{order}")
    def charge(attempt: Any, order: str) -> dict[str, str]:
        return {}

    assert charge.contract == receivers.get("stripe.v1").contract


def test_an_effect_of_a_pair_says_which_half_to_take() -> None:
    with pytest.raises(UsageError, match=r"\.prepare for the effect that prepares and \.commit"):
        effect(receivers.get("gmail.send"))(lambda attempt: None)
    assert (
        effect(receivers.get("gmail.send").commit, name="commit half")(lambda attempt: None).contract.receiver
        == "gmail.send"
    )


# --- define -----------------------------------------------------------------------------------------------------


def test_a_receiver_of_ones_own_says_what_is_known_and_the_rest_follows() -> None:
    own = acme(window=timedelta(hours=24), lookups=[LIST])
    contract = own.contract
    assert (contract.kind, contract.window_seconds, contract.key_name) == (Kind.KEYED, 86400, "Acme-Key")
    assert (contract.asks_by, contract.absence, contract.receiver) == ("reference", True, "acme.orders")
    assert acme().contract.protected_seconds == 0


@pytest.mark.parametrize(
    ("class_", "facts", "kind"),
    [
        ("key_replay", {"key": HEADER}, Kind.KEYED),
        ("natural_key", {"key": {"place": "body", "name": "id"}}, Kind.NATURAL),
        ("upsert", {"key": {"place": "path", "name": "id"}}, Kind.NATURAL),
        ("conditional", {"key": {"place": "object", "name": "id"}}, Kind.NATURAL),
        ("lookup_only", {"lookups": [LIST]}, Kind.LOOKUP),
        ("heuristic_window", {"lookups": [LIST]}, Kind.LOOKUP),
        ("lookup_by_event", {}, Kind.OPAQUE),
        ("none", {}, Kind.OPAQUE),
        ("single_use_secret", {"token": {"mode": "grace", "grace_seconds": 20}}, Kind.KEYED),
    ],
)
def test_each_class_has_a_usual_way_out_of_doubt(class_: str, facts: dict[str, Any], kind: Kind) -> None:
    assert receivers.define("acme", class_=class_, stakes="reversible", **facts).contract.kind is kind


def test_facts_may_be_plain_words_or_our_types() -> None:
    words = acme(
        key={"place": "header", "name": "Acme-Key"},
        lookups=[{"how": "GET /orders", "by": "reference", "kind": "list", "absence": True}],
        answers=[{"means": "landed", "status": [409]}],
        action={"within": "resend", "past": "lookup_then_resend"},
    )
    types = acme(
        lookups=(LIST,),
        answers=(Answer(means=Meaning.LANDED, status=(409,)),),
        action=Action(within=Do.RESEND, past=Do.LOOKUP_THEN_RESEND),
    )
    assert words == types and words.contract.answers.landed == (409,)


# Each contradiction -> a piece of what the error says about the field. The receiver is always named.
CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"class_": "key_repaly"}, r"'key_repaly'.*\$\.class"),
    ({"tpyo": 1}, "tpyo"),
    ({"stakes": "mony"}, r"\$\.stakes"),
    ({"window": Window(seconds=60.0, bound=Bound.FOR_EVER)}, r"window\.seconds=60.*for_ever.*leave one"),
    ({"window": Window(seconds=-1.0, bound=Bound.EXACT)}, r"window\.seconds=-1\.0.*positive"),
    ({"window": timedelta(0)}, "positive, finite time"),
    ({"class_": "none", "key": Key(), "window": 60}, r"window\.seconds=60.*guards nothing"),
    ({"key": Key()}, r"key\.place is missing.*Idempotency-Key"),
    ({"key": {"place": "body", "name": "key", "quoted": True}}, r"key\.quoted.*'body'.*leave quoted out"),
    ({"key": {"place": "header", "name": "K", "max_length": 10}}, r"key\.max_length=10.*Use another field"),
    ({"key": {"place": "header", "name": "K", "min_length": 9, "max_length": 8}}, r"key\.min_length=9 is more than"),
    ({"key": {"place": "header", "name": "K", "shape": "number", "prefix": "x"}}, r"key\.prefix='x'.*leave it out"),
    ({"key": {"place": "header", "name": "K", "charset": "dns", "prefix": "A"}}, r"key\.prefix='A' holds 'A'"),
    ({"key": {"place": "header", "name": "K", "shape": "sequence"}}, r"key\.shape='sequence'.*monotonic_sequence"),
    ({"scope": ("tenant",)}, r"scope names 'tenant'.*account, environment"),
    (
        {"lookups": [{"how": "s", "by": "x", "kind": "search", "absence": True}]},
        r"by='x' is kind='search'.*Leave absence",
    ),
    ({"lookups": [{"how": "e", "by": "x", "kind": "event", "absence": True}]}, r"by='x' is kind='event'"),
    ({"lookups": [LIST, LIST]}, "by='reference' twice"),
    ({"lookups": [{"how": "s", "by": "x", "kind": "get", "lag_seconds": -1}]}, "lag_seconds=-1.* must be 0 or more"),
    ({"class_": "lookup_only", "key": Key()}, "lookups are missing"),
    ({"action": Action(within=Do.RESEND, past=Do.LOOKUP_THEN_PARK)}, r"action\.past='lookup_then_park' asks"),
    ({"class_": "two_step_commit"}, "prepares and commits belong to"),
    ({"class_": "single_use_secret"}, "token belongs to the classes"),
    ({"token": Token(mode="strict")}, "token belongs to the classes"),  # type: ignore[arg-type]
    ({"answers": [{"means": "landed"}]}, "neither status nor codes"),
    (
        {"answers": [{"means": "landed", "status": [409]}, {"means": "in_flight", "status": [409]}]},
        "code 409 two meanings, 'landed' and 'in_flight'; name it once",
    ),
    ({"answers": [{"means": "landed", "codes": ["x"]}, {"means": "spent", "codes": ["x"]}]}, "code 'x' two meanings"),
    ({"code_at": ("error..code",)}, r"code_at holds 'error\.\.code'"),
    ({"marker": {"place": "trailer", "name": "x"}}, r"marker\.place='trailer'"),
    ({"checked": "yesterday"}, "checked='yesterday' must be a date"),
    ({"margins": Margins(window_factor=2.0)}, "window_factor=2.0"),
    ({"consumer_drops_repeats": True, "at_least_once": True}, "answer the same question"),
    ({"owned": True}, "owned says that the object's id is our key"),
    ({"replay": Replay(), "key": {"place": "hedder", "name": "x"}}, r"hedder.*\$\.key\.place"),
]


@pytest.mark.parametrize(("facts", "said"), CONTRADICTIONS)
def test_what_contradicts_itself_is_refused_by_field_and_receiver(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        acme(**facts)
    assert "acme.orders" in str(refused.value)


def test_a_question_that_decides_is_not_answered_by_a_default() -> None:
    for missing in ("class_", "stakes"):
        facts: dict[str, Any] = {"class_": "none", "stakes": "money"}
        del facts[missing]
        with pytest.raises(UsageError, match=rf"needs {missing.strip('_')}="):
            receivers.define("acme", **facts)


@pytest.mark.parametrize(
    ("name", "said", "problem"),
    [
        ("stripe.v1", {"operation": "payouts"}, "has no operation 'payouts'"),
        ("paypal.other", {"operation": "payout"}, "catalog_products_v1, orders_v1"),
        ("stripe.v1", {"setting": "x"}, "has no setting 'x'"),
        ("stripe.v1", {"window": 0}, "positive, finite"),
        ("stripe.v1", {"window": timedelta(days=2)}, "longer than the documented 86400 s"),
        ("smtp", {"window": 60}, "needs a key that is kept"),
        ("oauth.okta", {"window": 60}, "needs a key that is kept"),
        ("gmail.send", {"window": 60}, "needs a key that is kept"),
        ("linear.mutations", {"shape": "hex"}, "not what its key has to be"),
        ("stripe.v1", {"shape": "long"}, "must be one of any, uuid"),
        ("stripe.v1", {"stakes": "none"}, "must be one of money, message"),
        ("stripe.v1", {"asks": "colour"}, "asks='colour' is no lookup; there is metadata, metadata.search, object id"),
        ("stripe.v1", {"past": "hope"}, "must be one of resend"),
        ("stripe.v1", {"scope": ("tenant",)}, "scope names 'tenant'"),
        ("stripe.v1", {"grace_seconds": 5}, "hands out no tokens"),
        ("oauth.google", {"grace_seconds": 5}, "need no grace"),
        ("github.refs_prs", {"owned": True}, "owned says"),
        ("stripe.v1", {"checked": "soon"}, "must be a date"),
    ],
)
def test_narrowing_refuses_what_the_facts_do_not_carry(name: str, said: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as refused:
        receivers.get(name).with_(**said)
    assert name in str(refused.value)


def test_where_the_runtime_cannot_place_a_key_the_attempt_still_has_it() -> None:
    shopify = receivers.get("shopify.admin_graphql").contract
    assert (shopify.kind, shopify.place, shopify.key_name) == (Kind.KEYED, Place.NONE, "")
