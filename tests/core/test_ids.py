"""Names that outlive a process. The golden values here are a promise to every store that was ever written."""

from __future__ import annotations

import math
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core.errors import UsageError
from surefoot.core.ids import (
    branch_of,
    check_id,
    check_identity,
    check_key_shape,
    check_name,
    derive_key,
    fill_identity,
    next_key,
    render_key,
    slot_of,
)

GOLDEN = {
    ("demo", "ticket:acme"): "61a7414a95d58f666c5f716fd48c3216",
    ("shop", "order:42"): "dc07b5b9d17d9b48abd785fc36c25f56",
    ("bücher", "rückgabe:☕"): "48e1fd1b824a523aa59c60b8e9d226b6",
    ("", "x"): "59a454ce2b48611933914e7d1ae73b36",
    ("a", "bc"): "a4807e832d58e50654085c47783b0194",
    ("ab", "c"): "9f9fa87e480ddc2a0af1f589bc225e10",
    ("", "abc"): "9af2001202580aa76ccb0d5ed17cb4f0",
    ("abc", ""): "fbfc2e73a5a929ead83bd26621af64dd",
}
KEY = GOLDEN["demo", "ticket:acme"]
SHAPES = ["uuid", "uuid5", "uuid7", "hex", "base32", "base62", "number", "sequence"]
HEX_KEYS = st.integers(0, 2**128 - 1).map(lambda raw: f"{raw:032x}")


@pytest.mark.parametrize(("parts", "key"), GOLDEN.items())
def test_a_key_is_derived_as_it_was_in_the_first_release(parts: tuple[str, str], key: str) -> None:
    assert derive_key(*parts) == key


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_no_two_pairs_share_a_key(space: str, name: str, other_space: str, other_name: str) -> None:
    same = (space, name) == (other_space, other_name)
    assert (derive_key(space, name) == derive_key(other_space, other_name)) is same


@pytest.mark.parametrize(
    ("shape", "length", "text"),
    [
        ("uuid", 0, "61a7414a-95d5-4f66-ac5f-716fd48c3216"),
        ("uuid5", 0, "61a7414a-95d5-5f66-ac5f-716fd48c3216"),
        ("hex", 0, "61a7414a95d58f666c5f716fd48c3216"),
        ("hex", 20, "61a7414a95d58f666c5f"),
        ("base32", 0, "31mx0mn5enhxk6rqvhdza8rcgp"),
        ("base32", 20, "31mx0mn5enhxk6rqvhdz"),
        ("number", 0, "129803553432391864150514778363608707606"),
        ("number", 20, "12980355343239186415"),
    ],
)
def test_a_key_is_rendered_as_it_was_in_the_first_release(shape: str, length: int, text: str) -> None:
    assert render_key(KEY, shape, length) == text


@given(HEX_KEYS)
def test_a_uuid_carries_its_version_and_variant_and_the_other_122_bits(key: str) -> None:
    for shape, version in (("uuid", 4), ("uuid5", 5)):
        read = uuid.UUID(render_key(key, shape))
        assert (read.version, read.variant, str(read)) == (version, uuid.RFC_4122, render_key(key, shape))
        assert (read.int ^ int(key, 16)) & ~(0xF << 76) & ~(0x3 << 62) == 0


@given(HEX_KEYS)
def test_every_shape_has_its_length_and_alphabet(key: str) -> None:
    base32, number = render_key(key, "base32"), render_key(key, "number")
    assert len(render_key(key, "hex")) == 32 and len(base32) == 26 and len(number) == 39
    assert set(base32) <= set("0123456789abcdefghjkmnpqrstvwxyz")
    assert int(number) == int(key, 16)


@given(HEX_KEYS, HEX_KEYS, st.sampled_from(["hex", "base32", "number"]))
def test_two_keys_never_render_alike_at_full_length(key: str, other: str, shape: str) -> None:
    assert (render_key(key, shape) == render_key(other, shape)) is (key == other)


@given(HEX_KEYS, st.sampled_from(["hex", "base32", "number"]), st.integers(1, 26))
def test_a_shortened_key_is_the_beginning_of_the_whole_one(key: str, shape: str, length: int) -> None:
    assert render_key(key, shape, length) == render_key(key, shape)[:length]


@given(HEX_KEYS, HEX_KEYS)
def test_base_62_takes_22_letters_and_digits_and_keeps_every_bit(key: str, other: str) -> None:
    text = render_key(key, "base62")
    assert len(text) == 22 and text.isalnum() and text.isascii()
    assert (text == render_key(other, "base62")) is (key == other)
    assert render_key(key, "base62", 11) == text[-11:]


def test_a_uuid_of_version_7_begins_with_the_time_of_its_intent() -> None:
    early, late = render_key(KEY, "uuid7", at=1_700_000_000.0), render_key(KEY, "uuid7", at=1_700_000_000.001)
    assert uuid.UUID(early).version == 7 and uuid.UUID(early).variant == uuid.RFC_4122
    assert uuid.UUID(early).int >> 80 == 1_700_000_000_000 and early < late


def test_a_sequence_grows_with_each_intent() -> None:
    assert render_key(KEY, "sequence", at=1_700_000_000.5) == "1700000000500000"


def test_a_prefix_stands_before_the_key() -> None:
    assert render_key(KEY, "hex", prefix="client-") == "client-" + KEY


def test_a_used_up_key_is_followed_by_others_that_are_fixed_as_well() -> None:
    """Frozen: another derivation would send what is in doubt under a third key."""
    assert next_key(KEY, 0) == KEY
    assert len({next_key(KEY, n) for n in range(100)}) == 100
    assert next_key("0" * 32, 1) == "7f7c37e50bb30cf44928572a5b3de0b5"


def test_an_unknown_shape_is_refused_and_the_known_ones_are_named() -> None:
    for refuse in (lambda: render_key(KEY, "guid"), lambda: check_key_shape("guid", 0)):
        with pytest.raises(UsageError, match="uuid, uuid5, uuid7, hex, base32, base62, number or sequence"):
            refuse()


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_keys_are_accepted(shape: str) -> None:
    check_key_shape(shape, 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", [-1, 1, 8, 10])
def test_a_length_that_would_leave_too_few_bits_is_refused(shape: str, length: int) -> None:
    with pytest.raises(UsageError, match=r"at least|length"):
        check_key_shape(shape, length)


@pytest.mark.parametrize("shape", ["hex", "base32", "number"])
def test_the_shortest_length_that_is_accepted_still_tells_2_to_the_64_keys_apart(shape: str) -> None:
    def accepted(length: int) -> bool:
        try:
            check_key_shape(shape, length)
        except UsageError:
            return False
        return True

    shortest = next(length for length in range(1, 40) if accepted(length))
    highest = render_key("f" * 32, shape, shortest)
    base = {"hex": 16, "base32": 32, "number": 10}[shape]
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz" if shape == "base32" else "0123456789abcdef"
    count = 1 + sum(alphabet.index(digit) * base**place for place, digit in enumerate(reversed(highest)))
    assert math.log2(count) >= 64


@pytest.mark.parametrize("text", ["a", "x" * 200, "Grüße:☕", "two words", "a/b#c", "\u00a0inner\u00a0x".strip()])
def test_printable_ids_are_accepted_as_they_are(text: str) -> None:
    assert check_id(text, "run id") == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 201,
        " a",
        "a ",
        "a\n",
        "a\tb",
        "a\x00b",
        "\x1b[31m",
        "a\x7fb",
        "a\x85b",
        "a\x9bb",
        "a\ud800b",
        None,
        7,
        b"a",
    ],
)
def test_ids_that_could_not_be_shown_or_stored_are_refused_with_their_name(text: object) -> None:
    with pytest.raises(UsageError, match="run id"):
        check_id(text, "run id")


@pytest.mark.parametrize("text", ["a/b", "a#1", "/", "#", "", "a\n"])
def test_names_cannot_hold_what_separates_the_parts_of_a_slot(text: str) -> None:
    with pytest.raises(UsageError, match="step name"):
        check_name(text, "step name")


NAMES = st.text("abc.:-é ", min_size=1, max_size=8).filter(lambda text: text == text.strip() != "")
PATHS = st.lists(st.integers(0, 99), max_size=4).map(lambda parts: ".".join(map(str, parts)))


@given(PATHS, NAMES, st.integers(0, 1000))
def test_the_branch_of_a_slot_is_the_branch_it_was_made_of(path: str, name: str, occurrence: int) -> None:
    assert check_name(name, "name") == name
    assert branch_of(slot_of(path, name, occurrence)) == path


@given(PATHS, NAMES, st.integers(0, 20), PATHS, NAMES, st.integers(0, 20))
def test_two_uses_never_share_a_slot(path: str, name: str, n: int, path_2: str, name_2: str, n_2: int) -> None:
    assert (slot_of(path, name, n) == slot_of(path_2, name_2, n_2)) is ((path, name, n) == (path_2, name_2, n_2))


def test_slots_read_as_they_always_did() -> None:
    assert [slot_of("", "a", 0), slot_of("", "a", 2), slot_of("0.1", "a", 0), slot_of("0.1", "a", 1)] == [
        "a",
        "a#2",
        "0.1/a",
        "0.1/a#1",
    ]


def test_an_identity_is_filled_from_the_arguments_by_plain_name() -> None:
    assert (
        fill_identity("review:{partner}:{number}", {"partner": "ac me", "number": 7, "other": 1.5}) == "review:ac me:7"
    )
    assert fill_identity("{{x}}:{partner}", {"partner": "a"}) == "{x}:a"
    assert fill_identity("constant", {}) == "constant"


@pytest.mark.parametrize(
    "template",
    ["{other}", "{}", "{0}", "{partner.name}", "{partner[0]}", "{partner!r}", "{partner:>10}", "{partner:{width}}"],
)
def test_an_identity_template_may_only_name_arguments(template: str) -> None:
    with pytest.raises(UsageError, match="may only name arguments"):
        fill_identity(template, {"partner": "acme", "width": 3})
    with pytest.raises(UsageError, match="here: partner"):
        check_identity(template.replace("width", "x"), ["partner"])


@pytest.mark.parametrize("template", ["review:{partner", "review:partner}", "{", "}", "{partner!}"])
def test_a_malformed_identity_template_is_refused_as_misuse(template: str) -> None:
    with pytest.raises(UsageError):
        check_identity(template, ["partner"])


@pytest.mark.parametrize("value", [None, True, False, 1.5, b"x", ["a"], {"a": 1}])
def test_an_identity_is_made_of_strings_and_whole_numbers_only(value: object) -> None:
    with pytest.raises(UsageError, match="'partner' must be a str or int"):
        fill_identity("{partner}", {"partner": value})


@pytest.mark.parametrize("value", ["", "a\n", " ", "x" * 201, "\ud800"])
def test_an_identity_that_could_not_be_shown_is_refused_when_it_is_filled(value: str) -> None:
    with pytest.raises(UsageError, match="identity"):
        fill_identity("{partner}", {"partner": value})
