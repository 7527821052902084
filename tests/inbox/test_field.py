"""The Idempotency-Key field as the grammar has it, and what is refused."""

from __future__ import annotations

import pytest

from surefoot.inbox.field import Malformed, read_key

STRICT = [
    ('"8e03978e-40d5-43e8-bc93-6894a57f9324"', "8e03978e-40d5-43e8-bc93-6894a57f9324"),
    ('  "a"  ', "a"),
    ('"with blanks; and = signs"', "with blanks; and = signs"),
    (r'"a \"quoted\" and a \\"', r'a "quoted" and a \\'[:-1]),
    ('"k";a', "k"),
    ('"k"; a=1;b="x;y";c=?0;d=1.5;e=:aGk=:;f=tok/en:x;g=@1659578233;h=%"f%c3%bc"', "k"),
    ('"' + "k" * 255 + '"', "k" * 255),
]
MALFORMED = [
    "",
    '""',
    '"',
    '"open',
    'open"',
    '"a" "b"',
    '"a", "b"',
    '"a"b',
    '"a";',
    '"a";B=1',
    '"a";b=',
    r'"a\b"',
    '"tab\there"',
    '"ü"',
    "'single'",
    "two words",
    '("a")',
    '"' + "k" * 256 + '"',
    "k" * 256,
    "a\\b",
    "a,b",
]
BARE = ["8e03978e-40d5-43e8-bc93-6894a57f9324", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "order:7/retry=1", "123", "aGk="]


@pytest.mark.parametrize(("text", "key"), STRICT)
def test_a_string_is_read(text: str, key: str) -> None:
    assert read_key([text.encode("latin-1")], accept_bare=False) == key


@pytest.mark.parametrize("text", MALFORMED)
def test_what_is_no_string_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="expected a"):
        read_key([text.encode("latin-1")], accept_bare=True)


@pytest.mark.parametrize("text", BARE)
def test_a_bare_value_is_the_same_key_where_it_is_accepted(text: str) -> None:
    quoted = read_key([f'"{text}"'.encode()], accept_bare=True)
    assert read_key([text.encode()], accept_bare=True) == quoted == text
    with pytest.raises(Malformed, match="in double quotes, as in Idempotency-Key: "):
        read_key([text.encode()], accept_bare=False)


def test_no_field_is_no_key_and_two_are_refused() -> None:
    assert read_key([], accept_bare=True) is None
    with pytest.raises(Malformed, match="found 2; send one"):
        read_key([b'"a"', b'"a"'], accept_bare=True)
