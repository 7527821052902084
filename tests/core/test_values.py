"""Values come back exactly as they were, with the same types, or are refused before anything is written."""

from __future__ import annotations

import enum
import typing
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, NotRequired, Optional, TypedDict, Union
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.core import values
from surefoot.core.errors import UsageError, ValueRefused
from surefoot.core.values import DEPTH_MAX, Codec, difference, encode_canonical, refuse_inexact

TEXT = st.text(max_size=6)
NUMBERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | FLOATS | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4))


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"


@dataclass
class Inner:
    amount: Decimal
    tags: list[str] = field(default_factory=list)


@dataclass
class Outer:
    inner: Inner
    at: datetime
    inners: dict[str, Inner]
    colour: Colour = Colour.RED


class Ticket(TypedDict):
    id: int
    note: NotRequired[str]


class Point(msgspec.Struct):
    x: int
    y: float = 0.5


class Round(msgspec.Struct, tag="round"):
    radius: int


class Square(msgspec.Struct, tag="square"):
    side: int


class Model(pydantic.BaseModel):
    id: int
    when: datetime
    prices: dict[str, Decimal] = {}


class Tagged(pydantic.BaseModel):
    tags: set[int]


class Holder(pydantic.BaseModel):
    models: list[Model]


class Pair(NamedTuple):
    left: int
    right: float


@dataclass
class Marked:
    tags: set[int]


@dataclass
class Plain:
    name: str


@dataclass
class Twin:
    name: str


ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
TIMES = st.datetimes(timezones=st.none() | ZONES)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9)
INNERS = st.builds(Inner, DECIMALS, st.lists(TEXT, max_size=3))
MODELS = st.builds(Model, id=NUMBERS, when=TIMES, prices=st.dictionaries(TEXT, DECIMALS, max_size=2))

SHAPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Any, JSON),
    (dict[str, Any], st.dictionaries(TEXT, JSON, max_size=3)),
    (list[float], st.lists(FLOATS, max_size=4)),
    (None, st.none()),
    (Decimal, DECIMALS),
    (datetime, TIMES),
    (date, st.dates()),
    (timedelta, st.timedeltas(timedelta(days=-9999), timedelta(days=9999))),
    (bytes, st.binary(max_size=20)),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Mood, st.sampled_from(Mood)),
    (dict[Mood, int], st.dictionaries(st.sampled_from(Mood), NUMBERS)),
    (dict[int, str], st.dictionaries(NUMBERS, TEXT, max_size=3)),
    (Optional[int], st.none() | NUMBERS),  # noqa: UP045
    (int | str | None, st.none() | NUMBERS | TEXT),
    (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    (tuple[int, str], st.tuples(NUMBERS, TEXT)),
    (tuple[int, ...], st.lists(NUMBERS, max_size=4).map(tuple)),
    (set[int], st.sets(NUMBERS, max_size=4)),
    (frozenset[str], st.frozensets(TEXT, max_size=4)),
    (Inner, INNERS),
    (Outer, st.builds(Outer, INNERS, TIMES, st.dictionaries(TEXT, INNERS, max_size=2), st.sampled_from(Colour))),
    (list[Inner], st.lists(INNERS, max_size=3)),
    (Ticket, st.fixed_dictionaries({"id": NUMBERS}, optional={"note": TEXT})),
    (Point, st.builds(Point, NUMBERS, FLOATS)),
    (Round | Square, st.builds(Round, NUMBERS) | st.builds(Square, NUMBERS)),
    (Pair, st.builds(Pair, NUMBERS, FLOATS)),
    (Model, MODELS),
    (Holder, st.builds(Holder, models=st.lists(MODELS, max_size=2))),
    (list[Model], st.lists(MODELS, max_size=2)),
    (Model | None, st.none() | MODELS),
    # unions that msgspec refuses: two dataclasses, two models, a date beside a string, a set beside a list
    (Plain | Twin, st.builds(Plain, TEXT) | st.builds(Twin, TEXT)),
    (Union[Model, Holder], MODELS | st.builds(Holder, models=st.lists(MODELS, max_size=2))),  # noqa: UP007
    (datetime | str, TIMES | TEXT),
    (set[int] | list[int], st.sets(NUMBERS, max_size=3) | st.lists(NUMBERS, max_size=3)),
    (bytes | UUID | None, st.none() | st.binary(max_size=8) | st.uuids()),
]


def types_of(value: Any) -> Any:
    """The types all the way down, since 1, 1.0 and True are equal and are not the same."""
    if isinstance(value, dict):
        return dict, {key: types_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types_of(item) for item in value]
    return type(value), None


@pytest.mark.parametrize(("hint", "strategy"), SHAPES, ids=[str(hint) for hint, _ in SHAPES])
@settings(max_examples=20)
@given(data=st.data())
def test_a_value_comes_back_equal_and_of_the_same_type_live_and_on_replay(
    hint: Any, strategy: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(strategy)
    codec = Codec(hint, "the result of step 'a'")
    stored, live = codec.settle(value)
    replayed = codec.decode(stored)
    assert live == value and replayed == live
    assert types_of(live) == types_of(value) and types_of(replayed) == types_of(live)


@given(JSON)
def test_plain_json_needs_no_annotation(value: Any) -> None:
    for hint in (Any, typing.TypeVar("T")):
        assert Codec(hint, "x").settle(value)[1] == value


def test_an_int_where_a_float_is_annotated_is_a_float_both_times() -> None:
    stored, live = Codec(float, "x").settle(3)
    assert (live, type(live), type(Codec(float, "x").decode(stored))) == (3.0, float, float)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": [1, {"b": x}]}, lambda x: [[[x]]]])
def test_not_a_number_and_infinities_are_refused_at_any_depth(bad: float, wrap: Any) -> None:
    value = wrap(bad)
    for refuse in (lambda: Codec(Any, "x").settle(value), lambda: encode_canonical(value, "x")):
        with pytest.raises(ValueRefused, match="has no JSON form") as caught:
            refuse()
        assert caught.value.path.startswith("$")


@pytest.mark.parametrize(
    "value",
    [{NAN}, frozenset([INF]), Pair(1, NAN), (1, NAN), OrderedDict(a=NAN), Point(1, NAN), [Pair(1, INF)]],
    ids=lambda value: type(value).__name__,
)
def test_they_are_refused_in_every_kind_of_container_that_is_stored(value: Any) -> None:
    with pytest.raises(ValueRefused):
        encode_canonical(value, "x")
    with pytest.raises(ValueRefused):
        Codec(Any, "x").settle(value)


@pytest.mark.parametrize("hint", [float, list[float], set[float], Pair, Point, float | None])
def test_an_annotation_does_not_let_them_through(hint: Any) -> None:
    value = {float: NAN, Pair: Pair(1, NAN), Point: Point(1, NAN)}.get(hint)
    value = value if value is not None else {list[float]: [NAN], set[float]: {NAN}}.get(hint, NAN)
    with pytest.raises(ValueRefused):
        Codec(hint, "x").settle(value)


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"k": "\ud800"}, {"\ud800": 1}])
def test_a_lone_surrogate_is_refused(value: Any) -> None:
    for refuse in (lambda: Codec(Any, "x").settle(value), lambda: encode_canonical(value, "x")):
        with pytest.raises(ValueRefused, match="surrogate"):
            refuse()


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {None: 1}}, [{2.5: 1}], {True: 1}, {(1, 2): 3}])
def test_keys_that_are_not_strings_are_refused_unless_the_annotation_names_their_type(value: Any) -> None:
    for refuse in (lambda: Codec(Any, "x").settle(value), lambda: encode_canonical(value, "x")):
        with pytest.raises(ValueRefused):
            refuse()
    assert Codec(dict[int, str], "x").settle({1: "a"})[1] == {1: "a"}


@pytest.mark.parametrize(
    "value",
    [(1, 2), Colour.RED, b"x", Decimal("1.0"), Level.LOW, Mood.GOOD, {1}, UUID(int=1), date(2026, 1, 1), Plain("a")],
    ids=repr,
)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"a": {"b": x}}])
def test_what_would_come_back_as_another_type_is_refused_where_nothing_is_annotated(value: Any, wrap: Any) -> None:
    with pytest.raises(ValueRefused, match="annotate the exact type"):
        Codec(Any, "x").settle(wrap(value))


def test_an_enum_hidden_in_any_inside_a_dataclass_is_found_by_its_path() -> None:
    @dataclass
    class Carrier:
        items: list[Any]

    with pytest.raises(ValueRefused) as caught:
        Codec(Carrier, "x").settle(Carrier([1, Level.HIGH]))
    assert caught.value.path == "$.items[1]"


@pytest.mark.parametrize("hint", [Any, dict[str, int]])
def test_an_enum_hidden_in_a_key_is_refused(hint: Any) -> None:
    with pytest.raises(ValueRefused):
        Codec(hint, "x").settle({Mood.GOOD: 1})
    assert Codec(dict[Mood, int], "x").settle({Mood.GOOD: 1})[1] == {Mood.GOOD: 1}


def test_a_subclass_that_would_come_back_as_its_base_is_refused() -> None:
    @dataclass
    class More(Plain):
        extra: int = 0

    class Text(str):
        __slots__ = ()

    for hint, value in ((Plain, More("a")), (str, Text("a")), (dict[str, int], OrderedDict(a=1))):
        with pytest.raises(ValueRefused):
            Codec(hint, "x").settle(value)


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_what_is_nested_too_deep_is_refused_and_what_is_just_deep_is_not() -> None:
    assert Codec(Any, "x").settle(nested(DEPTH_MAX - 1))[1] == nested(DEPTH_MAX - 1)
    encode_canonical(nested(DEPTH_MAX - 1), "x")
    for depth in (DEPTH_MAX + 2, 990, 5000):
        for refuse in (Codec(Any, "x").settle, lambda value: encode_canonical(value, "x")):
            with pytest.raises(ValueRefused, match="nested deeper"):
                refuse(nested(depth))


def test_what_refers_to_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    knot: dict[str, Any] = {}
    knot["a"] = [knot]
    for value in (loop, knot):
        for refuse in (lambda v=value: Codec(Any, "x").settle(v), lambda v=value: encode_canonical(v, "x")):
            with pytest.raises(ValueRefused, match="nested deeper"):
                refuse()


class Unknown:
    pass


@pytest.mark.parametrize("value", [Unknown(), [Unknown()], {"a": Unknown()}, object(), lambda: 1, 1j, range(3)])
def test_a_value_of_an_unknown_class_is_refused(value: Any) -> None:
    for refuse in (lambda: Codec(Any, "x").settle(value), lambda: encode_canonical(value, "x")):
        with pytest.raises(ValueRefused, match="not a kind of value"):
            refuse()


@pytest.mark.parametrize("hint", [Unknown, list[Unknown], dict[str, Unknown], Unknown | None])
def test_an_annotation_that_could_never_be_read_back_is_refused_before_anything_runs(hint: Any) -> None:
    with pytest.raises(UsageError, match="cannot be read back"):
        Codec(hint, "the result of step 'a'")


@pytest.mark.parametrize(
    ("hint", "value"), [(int, "a"), (Ticket, {"note": "x"}), (Literal["a"], "b"), (Model, Plain("a"))]
)
def test_a_value_that_is_not_what_the_annotation_says_is_refused(hint: Any, value: Any) -> None:
    with pytest.raises(ValueRefused):
        Codec(hint, "x").settle(value)


def test_a_union_says_why_no_member_fits() -> None:
    with pytest.raises(ValueRefused, match="none of the union's members"):
        Codec(Plain | Twin, "x").settle(7)


def test_a_value_over_the_limit_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "VALUE_BYTES_MAX", 10)
    assert Codec(str, "x").settle("a" * 8)[1] == "a" * 8
    for refuse in (lambda: Codec(str, "x").settle("a" * 9), lambda: encode_canonical("a" * 9, "x")):
        with pytest.raises(ValueRefused, match="11 bytes, more than 10"):
            refuse()


def test_a_recorded_value_that_no_longer_fits_its_annotation_is_misuse_and_shows_the_value() -> None:
    for hint, stored in ((int, b'"a"'), (Plain | Twin, b'[7,{"name":"a"}]'), (Model, b'{"id":1}'), (Any, b"{")):
        with pytest.raises(UsageError, match="no longer fits the annotation") as caught:
            Codec(hint, "x").decode(stored)
        assert repr(stored) in str(caught.value)


def shuffled(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], data) for key in data.draw(st.permutations(sorted(value)))}
    return [shuffled(item, data) for item in value] if isinstance(value, list) else value


@given(JSON, st.data())
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: Any, data: st.DataObject) -> None:
    assert encode_canonical(shuffled(value, data), "x") == encode_canonical(value, "x")


@pytest.mark.parametrize("wrap", [set, frozenset, lambda tags: {"a": [set(tags)]}, Marked, lambda t: Tagged(tags=t)])
def test_canonical_json_does_not_depend_on_the_order_of_a_set(wrap: Any) -> None:
    """In a set of strings it changes with every process; in one of 0 and 8 with who came first."""
    one, two = {0, 8}, {8, 0}
    assert list(one) != list(two), "or this test proves nothing"
    assert encode_canonical(wrap(one), "x") == encode_canonical(wrap(two), "x")


@given(st.lists(JSON, min_size=2, max_size=6))
def test_values_that_share_their_canonical_json_are_the_same_value(many: list[Any]) -> None:
    seen: dict[bytes, Any] = {}
    for value in (*many, 0, 0.0, False, "0", None, "", [], {}):
        other = seen.setdefault(encode_canonical(value, "x"), value)
        assert difference(other, value) is None and types_of(other) == types_of(value)


@given(JSON)
def test_what_json_keeps_exactly_is_never_refused(value: Any) -> None:
    refuse_inexact(value, "x")
    assert difference(value, value) is None
    assert msgspec.json.decode(encode_canonical(value, "x")) == value
