"""Every key fits the receiver's limits, keeps 64 bits, and one that cannot is refused by name."""

from __future__ import annotations

import itertools
import string
import uuid

import pytest

from surefoot import UsageError, receivers
from surefoot.core.contract import Contract
from surefoot.core.ids import derive_key, render_key
from surefoot.receivers import Charset, Class, Key, KeyPlace, KeyShape
from surefoot.receivers.derive import has_key
from surefoot.receivers.fit import LETTERS, fit_key

NOW = 1_800_000_000.0
KEYS = [derive_key("ns", f"identity {number}") for number in range(40)]


def rendered(key: Key, bits: str) -> str:
    shape, length, prefix = fit_key(key, "acme")
    return render_key(bits, shape, length, prefix=prefix, at=NOW)


def sent(contract: Contract, bits: str) -> str:
    return render_key(bits, contract.shape, contract.length, prefix=contract.prefix, at=NOW)


def fits(key: Key, text: str) -> bool:
    letters = set(LETTERS.get(key.charset, string.printable))
    return (
        (key.min_length or 0) <= len(text) <= (key.max_length or 10_000)
        and text.startswith(key.prefix)
        and set(text) <= letters
    )


def test_whatever_the_limits_a_key_fits_them_or_is_refused() -> None:
    tried = refused = 0
    for charset, top, floor, prefix in itertools.product(
        Charset, (8, 11, 14, 16, 20, 22, 25, 26, 32, 36, 40, None), (None, 16, 32, 36), ("", "client-")
    ):
        letters = LETTERS.get(charset)
        if (floor or 0) > (top or 10_000) or (letters and not set(prefix) <= set(letters)):
            continue
        key = Key(place=KeyPlace.HEADER, name="K", charset=charset, max_length=top, min_length=floor, prefix=prefix)
        tried += 1
        try:
            found = {rendered(key, bits) for bits in KEYS}
        except UsageError:
            refused += 1
            continue
        assert len(found) == len(KEYS) and all(fits(key, text) for text in found), key
    assert tried > 150 and 0 < refused < tried / 2


@pytest.mark.parametrize(
    ("key", "shape", "length"),
    [
        (Key(), "uuid", 0),
        (Key(max_length=36), "uuid", 0),
        (Key(max_length=35), "hex", 0),
        (Key(charset=Charset.HEX, min_length=32, max_length=32), "hex", 0),
        (Key(charset=Charset.BASE32HEX, min_length=5), "hex", 0),
        (Key(max_length=30), "base32", 0),
        (Key(max_length=25), "base62", 0),
        (Key(max_length=11), "base62", 11),
        (Key(charset=Charset.DNS, max_length=20), "base32", 20),
        (Key(charset=Charset.HEX, max_length=16), "hex", 16),
        (Key(charset=Charset.ALPHANUMERIC), "hex", 0),
        (Key(charset=Charset.DIGITS, max_length=20), "number", 20),
        (Key(shape=KeyShape.UUID4), "uuid", 0),
        (Key(shape=KeyShape.UUID5), "uuid5", 0),
        (Key(shape=KeyShape.UUID7), "uuid7", 0),
        (Key(shape=KeyShape.HEX, max_length=20), "hex", 20),
        (Key(shape=KeyShape.NUMBER), "number", 0),
        (Key(shape=KeyShape.SEQUENCE), "sequence", 0),
    ],
)
def test_the_shape_is_the_one_that_needs_the_smallest_change(key: Key, shape: str, length: int) -> None:
    assert fit_key(key, "acme")[:2] == (shape, length)


@pytest.mark.parametrize(
    "key",
    [
        Key(max_length=10),
        Key(max_length=20, shape=KeyShape.UUID),
        Key(charset=Charset.DNS, max_length=13),
        Key(charset=Charset.DIGITS, max_length=19),
        Key(charset=Charset.HEX, max_length=15),
        Key(charset=Charset.ALPHANUMERIC, shape=KeyShape.UUID4),
        Key(max_length=20, prefix="a-long-prefix-"),
        Key(min_length=40),
    ],
)
def test_a_key_that_cannot_fit_is_refused_with_its_field_its_receiver_and_a_way_out(key: Key) -> None:
    with pytest.raises(UsageError, match=r"receiver 'acme': .*key\.max_length=.*Use another field"):
        fit_key(key, "acme")


def test_every_key_of_the_catalog_fits_what_its_receiver_takes() -> None:
    checked = 0
    for name in receivers.names():
        base = receivers.get(name)
        for receiver in [base, *(base.with_(operation=operation) for operation in base.variants)]:
            if receiver.class_ is Class.TWO_STEP_COMMIT or not has_key(receiver):
                continue
            texts = {sent(receiver.contract, bits) for bits in KEYS}
            assert all(fits(receiver.key, text) for text in texts), name
            if receiver.key.shape is not KeyShape.SEQUENCE:
                assert len(texts) == len(KEYS)
            checked += 1
    assert checked > 130


@pytest.mark.parametrize(
    ("name", "version"), [("coinbase_cdp", 4), ("linear.mutations", 4), ("moov.transfers", 5), ("stripe.v1", 4)]
)
def test_a_uuid_has_the_version_that_its_receiver_asks_for(name: str, version: int) -> None:
    assert uuid.UUID(sent(receivers.get(name).contract, KEYS[0])).version == version
    webhooks = receivers.get("twilio.other").with_(operation="webhooks").contract
    assert uuid.UUID(sent(webhooks, KEYS[0])).version == 7


def test_the_narrow_ones_are_as_their_vendors_say() -> None:
    discord, sage, calendar = (
        receivers.get(n).contract for n in ("discord.create_message", "sage_accounting", "google.calendar")
    )
    assert len(sent(discord, KEYS[0])) == 22
    assert len(sent(sage, KEYS[0])) == 32 and "-" not in sent(sage, KEYS[0])
    assert set(sent(calendar, KEYS[0])) <= set(LETTERS[Charset.BASE32HEX])
    chat = receivers.get("google.chat").with_(operation="message_id").contract
    assert sent(chat, KEYS[0]).startswith("client-") and len(sent(chat, KEYS[0])) <= 63
