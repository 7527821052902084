"""Receivers are found by name and by words, and facts that have grown old say so once."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from surefoot import UsageError, receivers
from surefoot.receivers import catalog
from surefoot.receivers.catalog import OldFact

CHECKED_AT = 1_796_000_000.0  # 2026-11-30
DAY = 86400.0


@pytest.fixture(autouse=True)
def _nobody_was_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_warned", set())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("stripe", r"stripe\.v1, stripe\.v2"), ("stripe.v3", r"stripe\.v1"), ("zendsk.tickets", r"zendesk\.tickets")],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=rf"no receiver is named '{name}'; the nearest are {nearest}"):
        receivers.get(name)


@pytest.mark.parametrize("name", ["", None, 3, ["stripe.v1"], "stripe\nv1", "x" * 300])
def test_a_name_is_a_printable_text(name: Any) -> None:
    for use in (receivers.get, lambda given: receivers.define(given, class_="none", stakes="money")):
        with pytest.raises(UsageError, match="of a receiver"):
            use(name)


@pytest.mark.parametrize("name", ["../stripe.v1", "stripe.v1.toml", "/etc/passwd", "STRIPE.V1"])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(UsageError, match="no receiver is named"):
        receivers.get(name)


def test_search_wants_every_word_and_puts_names_first() -> None:
    found = [receiver.id for receiver in receivers.search("mail")]
    assert found.index("resend.emails") < found.index("jira.issues") if "jira.issues" in found else found
    assert "sendgrid.mail_send" in found and "gmail.send" in found
    assert {receiver.id for receiver in receivers.search("DynamoDB transact")} >= {"aws.dynamodb.transact_write"}
    assert receivers.search("no such words at all") == []
    with pytest.raises(UsageError, match="needs words"):
        receivers.search("  ")


def test_search_reads_values_and_not_the_names_of_fields() -> None:
    assert receivers.search("pitfalls") == []


def test_facts_of_a_year_ago_warn_once() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        receivers.get("stripe.v1", now=CHECKED_AT + 365 * DAY)
    with pytest.warns(OldFact, match=r"'stripe\.v1' was last checked on 2026-11-30, 36\d days ago.*checked="):
        receivers.get("stripe.v1", now=CHECKED_AT + 368 * DAY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        receivers.get("stripe.v1", now=CHECKED_AT + 369 * DAY)


def test_facts_that_the_owner_checked_are_as_old_as_he_says() -> None:
    now = CHECKED_AT + 400 * DAY
    old = receivers.get("zendesk.tickets", now=CHECKED_AT)
    assert catalog.age_days(old, now) > 365 > catalog.age_days(old.with_(checked="2027-12-01"), now)
    assert catalog.age_days(receivers.define("acme", class_="none", stakes="money"), now) == 0
