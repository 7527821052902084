"""Arguments: bound as Python binds them, stored canonically by name, given back as annotated."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core.errors import UsageError, ValueRefused
from surefoot.core.values import ArgumentsCodec, Codec, resolve_hints


@dataclass
class Order:
    amount: Decimal
    at: datetime


def nothing() -> None: ...
def one(a: int) -> None: ...
def defaults(a: int, b: int = 2, c: int = 3) -> None: ...
def only_positional(a: int, b: int = 2, /) -> None: ...
def only_keyword(a: int, *, b: int, c: int = 3) -> None: ...
def star(a: int, *rest: int) -> None: ...
def stars(a: int = 1, *rest: int, b: int = 2, **more: int) -> None: ...
def every(a: int, /, b: int, c: int = 3, *rest: int, d: int, e: int = 5, **more: int) -> None: ...


FUNCTIONS: list[Callable[..., None]] = [
    nothing,
    one,
    defaults,
    only_positional,
    only_keyword,
    star,
    stars,
    every,
]
CALLS = st.tuples(
    st.lists(st.integers(0, 9), max_size=5).map(tuple),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e", "x"]), st.integers(0, 9), max_size=4),
)


@given(st.sampled_from(FUNCTIONS), CALLS)
def test_arguments_are_bound_as_a_plain_call_binds_them(function: Any, call: tuple[Any, Any]) -> None:
    args, kwargs = call
    codec = ArgumentsCodec(function, "step 'a'")
    expected = complaint = None
    try:
        expected = inspect.signature(function).bind(*args, **kwargs)
        expected.apply_defaults()
    except TypeError as error:
        complaint = str(error)
    try:
        bound, refused = codec.bind(args, kwargs), None
    except TypeError as error:
        bound, refused = None, str(error)
    assert refused == complaint
    assert bound == (expected and dict(expected.arguments))


@given(st.sampled_from(FUNCTIONS), CALLS)
def test_a_restored_call_binds_to_the_same_arguments(function: Any, call: tuple[Any, Any]) -> None:
    codec = ArgumentsCodec(function, "step 'a'")
    try:
        bound = codec.bind(*call)
    except TypeError:
        return
    args, kwargs = codec.restore(codec.encode(bound))
    assert codec.bind(args, kwargs) == bound


@given(st.sampled_from(FUNCTIONS), CALLS)
def test_a_default_that_is_spelled_out_changes_nothing_in_the_record(function: Any, call: tuple[Any, Any]) -> None:
    codec = ArgumentsCodec(function, "step 'a'")
    try:
        bound = codec.bind(*call)
    except TypeError:
        return
    args, kwargs = codec.restore(codec.encode(bound))
    assert codec.encode(codec.bind(args, kwargs)) == codec.encode(bound)


def test_arguments_come_back_as_annotated() -> None:
    def charge(order: Order, when: datetime, note: str = "", *, tags: set[str], raw: bytes) -> None: ...

    codec = ArgumentsCodec(charge, "step 'charge'")
    order = Order(Decimal("1.50"), datetime(2026, 1, 1))
    args, kwargs = codec.restore(codec.encode(codec.bind((order, order.at), {"tags": {"a"}, "raw": b"\xff"})))
    assert args == (order, order.at, "") and kwargs == {"tags": {"a"}, "raw": b"\xff"}
    assert type(args[0].amount) is Decimal


@dataclass
class Card:
    number: str


@dataclass
class Iban:
    account: str


@dataclass
class Voucher:
    number: str


@pytest.mark.parametrize("by", [Card("4242"), Iban("DE1"), "cash", None])
def test_of_a_union_of_classes_the_member_comes_back_that_was_given(by: Any) -> None:
    def pay(by: Card | Iban | str | None) -> None: ...

    codec = ArgumentsCodec(pay, "step 'pay'")
    bound = codec.bind((by,), {})
    assert codec.restore(codec.encode(bound), bound) == ((by,), {}) == codec.restore(codec.encode(bound))


def test_an_argument_that_its_annotation_does_not_fit_is_refused_as_what_the_caller_gave() -> None:
    def pay(by: Card | Iban | Voucher, amount: int) -> None: ...

    codec = ArgumentsCodec(pay, "step 'pay'")
    for args, why in (
        (
            (Card("1"), "ten"),
            r"argument 'amount' of step 'pay'.*\"ten\" is not as annotated; Expected `int`",
        ),
        ((Voucher("1"), 10), r"argument 'by' of step 'pay'.*a Voucher comes back as Card"),
        ((7, 10), r"argument 'by' of step 'pay'.*7 is not as annotated"),
    ):
        bound = codec.bind(args, {})
        with pytest.raises(ValueRefused, match=why):
            codec.restore(codec.encode(bound), bound)
    with pytest.raises(UsageError, match="no longer fits"):
        codec.restore(b'{"by":{"number":"1"},"amount":"ten"}')


def test_the_record_names_each_argument_and_sorts_by_name() -> None:
    codec = ArgumentsCodec(every, "step 'a'")
    assert codec.encode(codec.bind((1, 2), {"d": 4, "z": 9})) == (
        b'{"a":1,"b":2,"c":3,"d":4,"e":5,"more":{"z":9},"rest":[]}'
    )


def test_the_record_does_not_depend_on_the_order_of_keywords() -> None:
    codec = ArgumentsCodec(stars, "step 'a'")
    one_way, other_way = ({"x": 1, "y": 2, "b": 3}, {"b": 3, "y": 2, "x": 1})
    assert codec.encode(codec.bind((), one_way)) == codec.encode(codec.bind((), other_way))


def test_leading_parameters_that_are_not_the_callers_stay_out() -> None:
    def send(attempt: object, who: str, body: str = "hi") -> None: ...

    codec = ArgumentsCodec(send, "effect 'send'", skip=1)
    bound = codec.bind(("acme",), {})
    assert bound == {"who": "acme", "body": "hi"}
    assert codec.restore(codec.encode(bound)) == (("acme", "hi"), {})


def test_an_ignored_argument_stays_out_of_the_record_and_is_given_back_live() -> None:
    def ask(client: object, who: str, *, log: object = None) -> None: ...

    codec = ArgumentsCodec(ask, "step 'ask'", ignore=("client", "log"))
    client, log = object(), object()
    bound = codec.bind((client, "acme"), {"log": log})
    stored = codec.encode(bound)
    assert stored == b'{"who":"acme"}'
    assert codec.restore(stored, bound) == ((client, "acme"), {"log": log})
    assert bound["client"] is client, "encoding must not take anything out of the call"


def test_ignoring_a_parameter_that_does_not_exist_is_misuse() -> None:
    with pytest.raises(UsageError, match="'clint'"):
        ArgumentsCodec(one, "step 'ask'", ignore=("clint",))


def test_an_argument_that_cannot_be_stored_is_named_with_the_way_out() -> None:
    def ask(client: object, scores: list[float]) -> None: ...

    codec = ArgumentsCodec(ask, "step 'ask'")
    with pytest.raises(ValueRefused, match=r"argument 'client' of step 'ask'.*ignore=\(\"client\",\)"):
        codec.encode(codec.bind((object(), [1.0]), {}))
    with pytest.raises(ValueRefused, match=r"argument 'scores' of step 'ask' at \$\[1\]"):
        codec.encode(codec.bind(("c", [1.0, float("nan")]), {}))


def test_an_argument_that_no_longer_fits_its_annotation_is_named() -> None:
    with pytest.raises(UsageError, match="argument 'a' of step 'one'"):
        ArgumentsCodec(one, "step 'one'").restore(b'{"a":"x"}')


def test_a_parameter_that_is_gone_is_dropped_and_a_new_one_is_left_to_its_default() -> None:
    args, kwargs = ArgumentsCodec(defaults, "step 'a'").restore(b'{"a":1,"gone":7}')
    assert (args, kwargs) == ((1,), {})


def test_annotations_that_cannot_be_resolved_count_as_absent() -> None:
    def odd(a: NoSuchName, b: int) -> None: ...  # type: ignore[name-defined] # noqa: F821

    assert resolve_hints(odd) == {}
    assert ArgumentsCodec(odd, "step 'odd'").restore(b'{"a":[1],"b":2}') == (([1], 2), {})


def test_a_result_without_an_annotation_is_plain_json() -> None:
    assert Codec(inspect.Parameter.empty, "x").settle({"a": [1]}) == (b'{"a":[1]}', {"a": [1]})
