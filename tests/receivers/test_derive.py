"""From facts to the contract: each class and each way out of doubt in one table, and every number by its rule."""

from __future__ import annotations

import itertools
import math

import pytest

from surefoot import UsageError, receivers
from surefoot.core.contract import REFUSING_CODES, Bound, Kind, Margins, Meaning, Place
from surefoot.receivers import (
    Action,
    Answer,
    Class,
    Do,
    Key,
    KeyPlace,
    Known,
    Late,
    Lookup,
    LookupKind,
    LookupMargins,
    Receiver,
    Replay,
    Token,
    TokenMode,
    Window,
)
from surefoot.receivers.derive import contract_of, kind_of, lag_of
from surefoot.receivers.words import TOKENS

ALL = [receivers.get(name) for name in receivers.names()]
ONE_CONTRACT = [receiver for receiver in ALL if receiver.class_ is not Class.TWO_STEP_COMMIT]
HEADER = Key(place=KeyPlace.HEADER, name="Idempotency-Key")
LIST = Lookup(how="list", by="reference", kind=LookupKind.LIST, absence=True)
R, N, L, O = Kind.KEYED, Kind.NATURAL, Kind.LOOKUP, Kind.OPAQUE  # noqa: E741

# What is right in doubt within the window -> the kind; R: send again under the key, N if the object itself stays.
KINDS: dict[Do, Kind] = {
    Do.RESEND: R,
    Do.LOOKUP_FIRST: L,
    Do.LOOKUP_THEN_RESEND: L,
    Do.LOOKUP_THEN_PARK: L,
    Do.WAIT_FOR_EVENT: O,
    Do.RESEND_IF_CONSUMER_DROPS_REPEATS: O,
    Do.CANCEL_OR_PARK: O,
    Do.PARK: O,
    Do.NEW_INTENT: O,
}
STAYS = (Class.NATURAL_KEY, Class.UPSERT, Class.CONDITIONAL)


def receiver_with(class_: Class = Class.KEY_REPLAY, **facts: object) -> Receiver:
    usual: dict[str, object] = {
        "key": HEADER,
        "lookups": (LIST,),
        "window": Window(seconds=86400.0, bound=Bound.EXACT),
        "action": Action(within=Do.RESEND, past=Do.LOOKUP_THEN_RESEND),
    }
    return Receiver(id="acme", name="Acme", category="standard", class_=class_, stakes="money", **(usual | facts))  # type: ignore[arg-type]


def test_every_class_and_every_way_out_of_doubt_has_its_kind() -> None:
    for class_, within, bound in itertools.product(Class, Do, (Bound.EXACT, Bound.FOR_EVER)):
        if class_ in TOKENS:
            continue
        found = kind_of(receiver_with(class_, action=Action(within=within, past=Do.PARK), window=Window(bound=bound)))
        stays = class_ in STAYS and bound is Bound.FOR_EVER
        expected = N if within is Do.RESEND and (stays or class_ is Class.NONE) else KINDS[within]
        assert found is expected, (class_, within, bound)


def test_a_token_is_sent_again_only_as_far_as_its_grace_goes() -> None:
    expected = {TokenMode.STRICT: O, TokenMode.GRACE: R, TokenMode.REUSABLE: N, TokenMode.ROTATING_REUSABLE: N}
    for mode, kind in expected.items():
        given = receiver_with(Class.SINGLE_USE_SECRET, token=Token(mode=mode, grace_seconds=40.0))
        assert given.contract.kind is kind
        assert given.contract.key_name == "" and given.contract.place is Place.NONE
    unknown = receiver_with(Class.SINGLE_USE_SECRET, token=Token(mode=TokenMode.GRACE))
    assert unknown.contract.kind is O
    okta = receivers.get("oauth.okta").contract
    assert okta.protected_seconds == 15 and not okta.is_short


def test_the_derived_contract_does_what_the_facts_say_is_right() -> None:
    exceptions: dict[str, str] = {}
    for receiver in ONE_CONTRACT:
        kind, within = receiver.contract.kind, receiver.action.within
        usual = {R, N} if within is Do.RESEND else {KINDS[within]}
        if kind not in usual:
            exceptions[receiver.id] = receiver.action.why
    assert set(exceptions) == {
        "oauth.auth0",  # its overlap is 0 s until somebody sets it
        "oauth.cognito",
        "oauth.ory_hydra",
        "oauth.quickbooks",
        "oauth.github_app",  # its lookup would be a try of the access token
        "vonage.messages",  # has a report to ask besides its events
    }
    assert all(exceptions.values()), "an exception says why, in the data"


def test_past_the_window_an_empty_answer_counts_only_where_it_may_be_acted_on() -> None:
    for receiver in ONE_CONTRACT:
        contract = receiver.contract
        if contract.kind in (R, L) and not receiver.token:
            acts = receiver.action.past in (Do.LOOKUP_THEN_RESEND, Do.LOOKUP_FIRST, Do.RESEND)
            assert contract.absence <= acts, receiver.id
            assert contract.absence >= (receiver.action.past is Do.LOOKUP_THEN_RESEND), receiver.id


def test_a_lookup_that_does_not_show_everything_proves_nothing_whatever_is_done_past_the_window() -> None:
    partial = Lookup(how="list", by="reference", kind=LookupKind.LIST)
    assert receiver_with().contract.absence
    assert not receiver_with(lookups=(partial,)).contract.absence
    assert not receiver_with(lookups=()).contract.absence


def test_a_key_is_quoted_only_where_the_wire_wants_it() -> None:
    quoted = [receiver.id for receiver in ONE_CONTRACT if receiver.contract.quoted]
    assert quoted == ["ietf.idempotency_key"]


def test_half_of_a_window_is_relied_on_and_nothing_of_an_unknown_one() -> None:
    for receiver in ONE_CONTRACT:
        contract = receiver.contract
        if contract.kind is not R or contract.bound is Bound.FOR_EVER:
            continue
        assert contract.protected_seconds <= contract.window_seconds / 2, receiver.id
        if receiver.token is None and not contract.window_seconds:
            assert contract.protected_seconds == 0, receiver.id


def test_a_window_without_a_number_is_unknown_whatever_is_said_of_its_end() -> None:
    for bound in (Bound.EXACT, Bound.AT_LEAST, Bound.CONFIGURABLE, Bound.UNKNOWN):
        contract = receiver_with(window=Window(bound=bound)).contract
        assert (contract.bound, contract.protected_seconds) == (Bound.UNKNOWN, 0.0)
    assert receiver_with(window=Window(bound=Bound.STATE)).contract.bound is Bound.STATE


def test_a_late_repeat_that_is_refused_protects_for_ever_if_its_answer_is_known() -> None:
    late = Window(seconds=3600.0, bound=Bound.EXACT, late=Late.REJECTED)
    assert receiver_with(window=late).contract.bound is Bound.EXACT
    expired = Answer(means=Meaning.EXPIRED, status=(412,))
    known = receiver_with(window=late, answers=(expired,)).contract
    assert (known.bound, known.protected_seconds) == (Bound.FOR_EVER, math.inf)
    assert receivers.get("azure.repeatability").contract.bound is Bound.FOR_EVER


@pytest.mark.parametrize(
    ("kind", "lag", "relied_on"),
    [
        (LookupKind.LIST, 0.0, 10.0),
        (LookupKind.LIST, 3.0, 10.0),
        (LookupKind.SEARCH, 60.0, 180.0),
        (LookupKind.GET, None, 30.0),
        (LookupKind.LIST, None, 30.0),
        (LookupKind.SEARCH, None, 300.0),
        (LookupKind.EVENT, None, 900.0),
    ],
)
def test_a_lag_is_three_times_the_documented_one_or_follows_the_kind(
    kind: LookupKind, lag: float | None, relied_on: float
) -> None:
    lookup = Lookup(how="ask", by="reference", kind=kind, lag_seconds=lag)
    assert lag_of(receiver_with(), lookup) == relied_on
    wider = receiver_with(lookup_margins=LookupMargins(documented_multiplier=6, floor_seconds=1, list_seconds=7))
    assert lag_of(wider, Lookup(how="ask", by="x", kind=LookupKind.LIST, lag_seconds=2.0)) == 12.0
    assert lag_of(wider, Lookup(how="ask", by="x", kind=LookupKind.GET)) == 7.0


def test_of_several_lookups_the_first_that_is_no_event_is_asked() -> None:
    event = Lookup(how="webhook", by="event", kind=LookupKind.EVENT)
    assert receiver_with(lookups=(event, LIST)).contract.asks_by == "reference"
    only = receiver_with(lookups=(event,), action=Action(within=Do.RESEND, past=Do.PARK)).contract
    assert (only.asks_by, only.lag_seconds, only.absence) == ("event", 900.0, False)


def test_a_status_that_also_refuses_says_nothing_about_the_key() -> None:
    exists = Answer(means=Meaning.EXISTS, status=(400,))
    by_code = Answer(means=Meaning.EXISTS, status=(400,), codes=("DUPLICATE",))
    bare, named = receiver_with(answers=(exists,)).contract, receiver_with(answers=(by_code,)).contract
    assert bare.answers.refused == REFUSING_CODES and not bare.answers.exists
    assert named.answers.exists == ("DUPLICATE",) and named.answers.refused == REFUSING_CODES
    stored = Replay(refusals=Known.YES)
    assert receiver_with(replay=stored).contract.stores_refusals
    assert not receiver_with(replay=stored, answers=(exists,)).contract.stores_refusals


def test_refusals_prove_nothing_where_a_running_request_has_their_status() -> None:
    adyen = receivers.get("adyen.checkout")
    assert adyen.replay.refusals is Known.YES
    assert any(a.means is Meaning.IN_FLIGHT and 422 in a.status for a in adyen.answers)
    assert not adyen.contract.stores_refusals, "a client that overlooks code 704 would call a running payment refused"
    assert receivers.get("stripe.v1").contract.stores_refusals


def test_a_code_of_digits_is_known_as_text_and_as_number() -> None:
    adyen = receivers.get("adyen.checkout").contract.answers
    assert adyen.meaning(["704"]) == (Meaning.IN_FLIGHT, "704") and adyen.meaning([704]) == (Meaning.IN_FLIGHT, 704)
    assert set(adyen.not_processed) == {703, "703"}


def test_a_5xx_after_which_one_has_to_look_first_leaves_the_key_spent() -> None:
    checkout = receivers.get("checkout_com.payments").contract
    assert set(checkout.answers.spent) == {500, 502, 503, 504}
    assert receivers.get("stripe.v1").contract.answers.spent == (500,)


def test_a_declined_card_and_a_message_to_nowhere_are_refusals() -> None:
    stripe, slack = (receivers.get(name).contract.answers for name in ("stripe.v1", "slack.chat_post_message"))
    assert stripe.meaning([402]) == (Meaning.REFUSED, 402)
    assert stripe.meaning(["card_error", 402]) == (Meaning.REFUSED, "card_error")
    assert slack.meaning(["channel_not_found", 200]) == (Meaning.REFUSED, "channel_not_found")
    assert slack.meaning(["internal_error", 200]) is None, "a part of it may have happened"
    assert slack.meaning(["ratelimited", 429]) == (Meaning.NOT_PROCESSED, "ratelimited")


def test_a_number_that_can_be_overtaken_is_not_sent_again_unless_there_is_one_writer() -> None:
    stream = receivers.get("rabbitmq.stream")
    assert (stream.contract.kind, stream.contract.absence) == (L, False)
    alone = stream.with_(setting="one_writer").contract
    assert (alone.kind, alone.bound, alone.shape) == (R, Bound.FOR_EVER, "sequence")
    own = receivers.define("acme", class_="monotonic_sequence", stakes="message", key={"place": "body", "name": "n"})
    assert own.contract.kind is O


def test_refusals_count_as_stored_only_where_that_is_documented() -> None:
    for receiver in ONE_CONTRACT:
        if receiver.contract.stores_refusals:
            assert receiver.replay.refusals is Known.YES, receiver.id


def test_a_key_that_comes_with_the_arguments_is_not_rendered() -> None:
    drive = receivers.get("google.drive").contract
    assert (drive.kind, drive.place, drive.key_name) == (N, Place.NONE, "")
    assert receivers.get("postgres.unique_key").contract.place is Place.NONE


def test_prepare_and_commit_are_two_contracts() -> None:
    gmail = receivers.get("gmail.send")
    with pytest.raises(UsageError, match=r"gmail\.send.*\.prepare.*\.commit"):
        _ = gmail.contract
    assert (gmail.prepare.kind, gmail.commit.kind) == (L, N)
    assert (gmail.commit.asks_by, gmail.commit.absence) == ("Message-ID", False)
    with pytest.raises(UsageError, match="no prepare-and-commit pair"):
        _ = receivers.get("stripe.v1").prepare


def test_margins_are_those_of_the_receiver() -> None:
    margins = Margins(window_factor=0.25)
    assert receiver_with(margins=margins).contract.protected_seconds == 86400 / 4
    assert contract_of(receiver_with()).margins == Margins()
