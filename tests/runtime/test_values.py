"""R9 for values: the workflow sees the same value and type live and on replay, or the value is refused."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from surefoot import Surefoot, UsageError, ValueRefused, step, workflow
from tests.runtime.support import Crash, live_and_replayed, live_and_replayed_async, rows


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclass
class Order:
    id: int
    total: Money
    at: datetime
    tags: list[str] = field(default_factory=list)
    parent: "Order | None" = None


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str


class Ticket(TypedDict):
    id: str
    opened: datetime


class Point(NamedTuple):
    x: int
    y: float


class Row(msgspec.Struct):
    id: int
    body: bytes = b""


class Model(pydantic.BaseModel):
    name: str
    price: Decimal
    at: datetime
    inner: "Model | None" = None


AT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
MONEY = Money(Decimal("12.340"))
ORDER = Order(1, MONEY, AT, ["a", "ü"], Order(2, MONEY, AT))
MODEL = Model(name="m", price=Decimal("1.10"), at=AT, inner=Model(name="n", price=Decimal(2), at=AT))

KEPT: list[tuple[Any, Any]] = [
    (Any, None),
    (Any, {"a": [1, 2.5, "x", None, True, {"deep": []}]}),
    (Any, [{"a": 1}, "ünïcode 🐎 \x00 \n"]),
    (int, 2**63 - 1),
    (int, -(2**63)),
    (int, 2**70),
    (Any, 10**60),
    (float, 0.1),
    (float, -0.0),
    (float, 1e308),
    (bool, False),
    (str, ""),
    (bytes, b"\x00\xff\x80"),
    (Decimal, Decimal("0.10")),
    (datetime, AT),
    (datetime, AT.replace(tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (datetime, AT.replace(tzinfo=None)),
    (date, date(2026, 1, 2)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (UUID, UUID(int=7)),
    (Colour, Colour.BLUE),
    (Level, Level.HIGH),
    (Literal["a", "b"], "b"),
    (Money, MONEY),
    (Order, ORDER),
    (Ticket, {"id": "t", "opened": AT}),
    (Point, Point(1, 2.5)),
    (Row, Row(1, b"\x01")),
    (Model, MODEL),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (dict[int, str], {1: "a"}),
    (dict[str, Money], {"m": MONEY}),
    (list[Order], [ORDER, ORDER]),
    (list[Model], [MODEL]),
    (dict[str, tuple[Money, Colour]], {"k": (MONEY, Colour.RED)}),
    (Money | None, None),
    (Money | None, MONEY),
    (Model | None, MODEL),
    (int | str, "1"),
    (int | str, 1),
    (Cat | Dog, Dog("rex")),
    (Cat | Dog, Cat("rex")),
    (Cat | Dog | None, None),
    (list[Decimal | None], [Decimal(1), None]),
]


def same(left: Any, right: Any) -> bool:
    """Equal, of one type, and so all the way down."""
    if type(left) is not type(right) or left != right or repr(left) != repr(right):
        return False
    if isinstance(left, dict):
        return all(same(left[k], right[k]) for k in left) and list(left) == list(right)
    if isinstance(left, list | tuple):
        return all(map(same, left, right))
    return True


@pytest.mark.parametrize(("hint", "value"), KEPT, ids=[f"{h}-{v!r}"[:60] for h, v in KEPT])
def test_a_result_comes_back_exactly_live_and_on_replay(db: Path, hint: Any, value: Any) -> None:
    ran: list[int] = []

    def produce() -> Any:
        ran.append(1)
        return value

    produce.__annotations__["return"] = hint
    made = step(produce)
    live, replayed = live_and_replayed(db, made)
    assert same(live, value) or live == value
    assert same(live, replayed)
    assert ran == [1]


@pytest.mark.parametrize(("hint", "value"), KEPT, ids=[f"{h}-{v!r}"[:60] for h, v in KEPT])
async def test_an_async_result_comes_back_exactly_live_and_on_replay(db: Path, hint: Any, value: Any) -> None:
    async def produce() -> Any:
        return value

    produce.__annotations__["return"] = hint
    live, replayed = await live_and_replayed_async(db, step(produce))
    assert live == value and same(live, replayed)


def test_the_workflow_never_sees_the_object_that_the_step_returned(db: Path) -> None:
    shared: dict[str, list[int]] = {"n": [1]}

    @step
    def produce() -> dict[str, list[int]]:
        return shared

    @workflow
    def flow() -> list[int]:
        got = produce()
        shared["n"].append(2)
        got["n"].append(3)
        return produce()["n"]

    with Surefoot(db) as sf:
        assert sf.run(flow, id="r") == [1, 2]


def test_a_mutated_result_is_whole_again_on_replay(db: Path) -> None:
    def ask() -> list[int]:
        got = made()
        copy = list(got)
        got.clear()
        return copy

    @step
    def made() -> list[int]:
        return [1, 2]

    live, replayed = live_and_replayed(db, ask)
    assert live == replayed == [1, 2]


def test_an_int_under_a_float_annotation_is_a_float_both_times(db: Path) -> None:
    @step
    def rate() -> float:
        return 3

    live, replayed = live_and_replayed(db, rate)
    assert same(live, replayed) and type(live) is float


def recursive() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


REFUSED: list[tuple[Any, Callable[[], Any], str]] = [
    (Any, lambda: (1, 2), "tuple comes back as list"),
    (Any, lambda: {"deep": [(1,)]}, r"\$\.deep\[0\]"),
    (Any, lambda: float("nan"), "nan has no JSON form"),
    (float, lambda: float("inf"), "inf"),
    (Any, lambda: {1: "a"}, "keys"),
    (Any, lambda: "\ud800", "surrogate"),
    (Any, lambda: b"raw", "bytes comes back as str"),
    (Any, lambda: AT, "datetime comes back as str"),
    (Any, lambda: Decimal(1), "Decimal comes back as str"),
    (Any, lambda: Colour.RED, "Colour comes back as str"),
    (Any, lambda: MONEY, "Money comes back as dict"),
    (Any, lambda: {1, 2}, "set comes back as list"),
    (Any, lambda: object(), "object"),
    (Any, lambda: 1 + 2j, "complex|cannot"),
    (Any, recursive, "deeper|itself"),
    (int, lambda: "1", "annotated"),
    (Money, lambda: {"amount": "1"}, "dict comes back as Money"),
    (Cat | Dog, lambda: "rex", "none of the union"),
    (tuple[int, str], lambda: [1, "a"], "list comes back as tuple"),
    (list[float], lambda: [1.0, float("nan")], "."),
    (Any, lambda: (x for x in "ab"), "generator"),
]


@pytest.mark.parametrize(("hint", "make", "why"), REFUSED, ids=range(len(REFUSED)))
def test_a_result_that_cannot_be_kept_is_that_steps_failure_live_and_on_replay(
    db: Path, hint: Any, make: Callable[[], Any], why: str
) -> None:
    ran: list[int] = []

    def produce() -> Any:
        ran.append(1)
        return make()

    produce.__annotations__["return"] = hint
    live, replayed = live_and_replayed(db, step(retries=5)(produce))
    assert isinstance(live, ValueRefused) and type(replayed) is ValueRefused
    with pytest.raises(ValueRefused, match=why):
        raise live
    assert str(live) == str(replayed) and live.args == replayed.args
    assert ran == [1], "an unstorable result is recorded at once and never tried again"


BAD_ARGUMENTS: list[tuple[Any, str]] = [
    (float("nan"), "nan"),
    ({1: "a"}, "keys must be strings"),
    ("\udc80", "surrogate"),
    (object(), "object"),
    ({"deep": [float("inf")]}, r"\$\.deep\[0\]"),
    (recursive(), "deeper|itself"),
    (lambda: None, "function"),
]


@pytest.mark.parametrize(("value", "why"), BAD_ARGUMENTS, ids=range(len(BAD_ARGUMENTS)))
def test_an_argument_that_cannot_be_kept_is_refused_before_the_body_runs(db: Path, value: Any, why: str) -> None:
    ran: list[int] = []

    @step
    def take(thing: Any) -> None:
        ran.append(1)

    @workflow
    def flow() -> str:
        with pytest.raises(ValueRefused, match=why) as caught:
            take(value)
        return caught.value.what

    with Surefoot(db) as sf:
        assert "argument 'thing' of step" in sf.run(flow, id="r")
        assert rows(db)["entries"] == []
    assert ran == []


@pytest.mark.parametrize(("value", "why"), BAD_ARGUMENTS, ids=range(len(BAD_ARGUMENTS)))
def test_a_workflow_argument_that_cannot_be_kept_starts_nothing(db: Path, value: Any, why: str) -> None:
    @workflow
    def flow(thing: Any) -> None:
        raise AssertionError("never reached")

    with Surefoot(db) as sf:
        with pytest.raises(ValueRefused, match=why):
            sf.run(flow, value, id="r")
        assert sf.list() == []


def test_a_workflow_argument_of_another_type_than_annotated_starts_nothing(db: Path) -> None:
    @workflow
    def flow(n: int, at: datetime) -> None:
        raise AssertionError("never reached")

    with Surefoot(db) as sf:
        with pytest.raises(UsageError, match="argument 'n'"):
            sf.run(flow, "one", AT, id="r")
        assert sf.list() == []


def test_a_result_annotation_that_nothing_can_read_back_is_refused_before_the_body_runs(db: Path) -> None:
    ran: list[int] = []

    class Unknown:
        pass

    def produce() -> Any:
        ran.append(1)
        return Unknown()

    produce.__annotations__["return"] = Unknown
    live, replayed = live_and_replayed(db, step(produce))
    assert isinstance(live, UsageError) and isinstance(replayed, UsageError) and str(live) == str(replayed)
    assert ran == [], "its annotation alone tells that the result cannot be kept"


def test_arguments_arrive_in_the_workflow_as_annotated_live_and_on_replay(db: Path) -> None:
    seen: list[Any] = []

    @workflow
    def flow(order: Order, model: Model, pairs: tuple[int, str], colour: Colour = Colour.RED, *rest: int) -> None:
        seen.append((order, model, pairs, colour, rest))
        if len(seen) == 1:
            raise Crash

    for _ in range(2):
        with Surefoot(db) as sf:
            try:
                sf.run(flow, ORDER, MODEL, (1, "a"), Colour.BLUE, 5, 6, id="r")
            except Crash:
                continue
    assert same(seen[0], seen[1]) and seen[0] == (ORDER, MODEL, (1, "a"), Colour.BLUE, (5, 6))


def test_a_workflow_result_comes_back_exactly_from_the_store(db: Path) -> None:
    @workflow
    def flow() -> Order:
        return ORDER

    with Surefoot(db) as sf:
        live = sf.run(flow, id="r")
    with Surefoot(db) as sf:
        assert same(sf.run(flow, id="r"), live) and live == ORDER


def test_a_workflow_result_that_cannot_be_kept_fails_the_run_and_says_why(db: Path) -> None:
    @workflow
    def flow() -> Any:
        return (1, 2)

    with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(ValueRefused, match="result of workflow"):
                sf.run(flow, id="r")
        assert sf.get("r").status == "failed"


def test_large_values_are_stored_once_outside_the_journal(db: Path) -> None:
    big = "x" * 200_000

    @step
    def produce(again: int) -> str:
        return big

    @step
    def take(text: str) -> int:
        return len(text)

    @workflow
    def flow(text: str) -> str:
        assert take(text) == len(big) and take(produce(1)) == len(big)
        return produce(2)

    with Surefoot(db) as sf:
        assert sf.run(flow, big, id="r") == big
        assert sf.get("r").result == big and sf.get("r").arguments == {"text": big}
        table = rows(db)
        assert sorted(len(row[1]) for row in table["blobs"]) == [200_002, 200_002 + len('{"text":}')]
        assert max(len(row[9]) for row in table["entries"]) < 100
    with Surefoot(db) as sf:
        assert sf.run(flow, big, id="r") == big


def test_a_large_value_is_the_same_on_replay(db: Path) -> None:
    @step
    def produce() -> list[Money]:
        return [Money(Decimal(n)) for n in range(5000)]

    live, replayed = live_and_replayed(db, produce)
    assert live == replayed and len(live) == 5000


def test_a_value_over_the_limit_is_refused_and_nothing_half_is_kept(db: Path) -> None:
    huge = "x" * (64 << 20)

    @step
    def take(text: str) -> int:
        return len(text)

    @step
    def produce() -> str:
        return huge

    @workflow
    def flow() -> list[str]:
        out: list[str] = []
        for ask in (lambda: take(huge), produce):
            with pytest.raises(ValueRefused, match="bytes, more than") as caught:
                ask()
            out.append(caught.value.what)
        return out

    with Surefoot(db) as sf:
        argument, result = sf.run(flow, id="r")
        assert "argument 'text'" in argument and "result" in result
        assert rows(db)["blobs"] == [] and len(rows(db)["entries"]) == 1
