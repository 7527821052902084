"""Misuse of names, functions, contracts and calls: a clear error before anything is written or sent."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import surefoot
from surefoot import (
    Attempt,
    Surefoot,
    UsageError,
    effect,
    keyed,
    lookup,
    natural,
    opaque,
    same_transaction,
    step,
    workflow,
)
from surefoot.core.contract import Margins
from tests.runtime.support import restart, rows


def nothing_written(db: Path) -> bool:
    return not any(rows(db).values())


@workflow(name="fine")
def fine(n: int = 0) -> int:
    return n


BAD_IDS = [
    "",
    "a\nb",
    "a\tb",
    "\x00",
    "\x1b[31mred",
    "\x7f",
    "\x85",
    "a\u2028".replace("\u2028", "\x9f"),
    "\ud800",
    " a",
    "a ",
    "x" * 201,
    5,
    None,
    b"bytes",
]


@pytest.mark.parametrize("run_id", BAD_IDS, ids=repr)
def test_a_bad_run_id_starts_nothing(db: Path, run_id: Any) -> None:
    with Surefoot(db) as sf:
        for begin in (sf.run, sf.start):
            with pytest.raises(UsageError, match="id"):
                begin(fine, id=run_id)
        assert nothing_written(db)


@pytest.mark.parametrize("run_id", ["a", "ü", "order 7/3#1: été", "x" * 200, "🐎", "'; DROP TABLE runs; --", "%s ? :1"])
def test_any_printable_text_is_a_run_id(db: Path, run_id: str) -> None:
    with Surefoot(db) as sf:
        assert sf.run(fine, 3, id=run_id) == 3
        assert sf.get(run_id).id == run_id


def plain_function() -> None:
    """Not decorated."""


@pytest.mark.parametrize(
    "thing", [plain_function, lambda: 1, "fine", None, step(plain_function), Surefoot], ids=range(6)
)
def test_what_is_not_a_workflow_is_not_run(db: Path, thing: Any) -> None:
    with Surefoot(db) as sf:
        with pytest.raises(UsageError, match="is not a workflow; decorate the function with @workflow"):
            sf.run(thing, id="r")
        assert nothing_written(db)


def test_a_run_of_a_workflow_that_this_program_does_not_know_is_left_alone(db: Path) -> None:
    with Surefoot(db) as sf:
        sf.run(fine, 1, id="r")
    restart()
    with Surefoot(db) as sf:
        assert sf.get("r").workflow == "fine" and sf.get("r").result == 1


def test_a_workflow_called_directly_says_how_to_run_it() -> None:
    with pytest.raises(UsageError, match=r"called directly.*run\(fine, \.\.\., id=\.\.\.\)"):
        fine(1)
    assert fine.function(2) == 2


def nested_calls(sf: Surefoot) -> list[Callable[[], Any]]:
    return [
        lambda: fine(1),
        lambda: sf.run(fine, 1, id="inner"),
        lambda: sf.run(fine, 1, id="outer"),
        lambda: sf.start(fine, 1, id="inner"),
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_nested_run_is_refused_and_the_outer_one_goes_on(db: Path, number: int) -> None:
    @workflow
    def outer() -> str:
        with pytest.raises(UsageError, match=r"surefoot\.call"):
            nested_calls(sf)[number]()
        return "refused"

    with Surefoot(db) as sf:
        assert sf.run(outer, id="outer") == "refused"
        assert [run.id for run in sf.list()] == ["outer"]


@pytest.mark.parametrize("how", ["run", "start", "call"])
async def test_a_nested_async_run_is_refused_too(db: Path, how: str) -> None:
    @workflow
    async def inner() -> int:
        return 1

    @workflow
    async def outer() -> str:
        ways: dict[str, Callable[[], Any]] = {
            "run": lambda: sf.run(inner, id="inner"),
            "start": lambda: sf.start(inner, id="inner"),
            "call": inner,
        }
        with pytest.raises(UsageError, match=r"surefoot\.call"):
            await ways[how]()
        return "refused"

    async with Surefoot(db) as sf:
        assert await sf.run(outer, id="outer") == "refused"
        assert [run.id for run in sf.list()] == ["outer"]


def test_a_worker_refuses_two_workflows_of_one_name_and_shows_both_places(db: Path) -> None:
    @workflow(name="doubled")
    def one() -> None: ...

    @workflow(name="doubled")
    def two() -> None: ...

    with Surefoot(db) as sf:
        with pytest.raises(
            UsageError, match=r"(?s)two workflows are named 'doubled'.*test_bad_input.py:\d+ and .*py:\d+"
        ):
            sf.worker(workflows=[one, two])
        sf.worker(workflows=[two])


def test_a_cell_that_was_edited_and_run_again_replaces_its_workflow(db: Path) -> None:
    """As in a notebook or after a reload: the same function, at another place of another file."""
    namespace: dict[str, Any] = {"__name__": "__main__", "workflow": workflow}
    for number in (1, 2):
        source = "\n" * number + f"@workflow\ndef cell() -> int:\n    return {number}\n"
        exec(compile(source, f"<cell {number}>", "exec"), namespace)  # what a notebook does
    with Surefoot(db) as sf:
        assert sf.run(namespace["cell"], id="r") == 2


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


class Instance:
    def __call__(self) -> None: ...


NOT_FUNCTIONS = [generator, async_generator, Instance, Instance(), 5, "x", step(plain_function), print]


@pytest.mark.parametrize("decorate", [step, workflow, effect(opaque())], ids=["step", "workflow", "effect"])
@pytest.mark.parametrize("thing", NOT_FUNCTIONS[:7], ids=range(7))
def test_what_can_be_neither_recorded_nor_replayed_is_refused_when_decorated(decorate: Any, thing: Any) -> None:
    with pytest.raises(UsageError, match=r"generator function|needs a function|decorated already"):
        decorate(thing)


@pytest.mark.parametrize("kind", ["step", "effect"])
def test_an_async_body_in_a_def_workflow_is_refused_by_name(db: Path, kind: str) -> None:
    sent: list[int] = []

    @step
    async def body() -> int:
        return 1

    @effect(opaque())
    async def send(attempt: Attempt) -> int:
        sent.append(1)
        return 1

    @workflow
    def flow() -> Any:
        body() if kind == "step" else send()
        return "the coroutine was dropped, and nothing said so"

    with Surefoot(db) as sf, pytest.raises(UsageError, match=r"async def"):
        sf.run(flow, id="r")
    assert rows(db)["entries"] == [] and sent == []


def test_a_workflow_or_step_that_returns_a_coroutine_is_told(db: Path) -> None:
    async def later() -> int:
        return 1

    pending: list[Any] = []

    @workflow
    def flow() -> Any:
        pending.append(later())
        return pending[-1]

    with Surefoot(db) as sf, pytest.raises(UsageError, match="coroutine"):
        sf.run(flow, id="r")
    pending[0].close()


BAD_CONTRACTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: keyed(window=0), "window"),
    (lambda: keyed(window=timedelta(seconds=-1)), "window"),
    (lambda: keyed(window=float("nan")), "window"),
    (lambda: keyed(window=float("inf")), "window"),
    (lambda: keyed(window=60, margins=Margins(window_factor=0)), "window_factor"),
    (lambda: keyed(window=60, margins=Margins(window_factor=1.5)), "window_factor"),
    (lambda: keyed(window=60, shape="ulid"), "shape"),
    (lambda: keyed(window=60, shape="hex", length=8), "64 bits"),
    (lambda: keyed(window=60, lag=-1), "lag"),
    (lambda: keyed(window=60, refused=(409,)), "409"),
    (lambda: keyed(window=60, in_flight=(422,), refused=(422,)), "422"),
    (lambda: natural(exists=(404,), refused=(404,)), "404"),
    (lambda: lookup(lag=-5), "lag"),
    (lambda: lookup(lag=float("inf")), "lag"),
    (lambda: natural(shape="base32", length=5), "64 bits"),
    (lambda: same_transaction("agents.db"), "connection"),
]


@pytest.mark.parametrize(("make", "why"), BAD_CONTRACTS, ids=range(len(BAD_CONTRACTS)))
def test_a_contract_that_contradicts_itself_is_refused_when_it_is_made(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        make()


def with_lookup(contract: Any) -> None:
    @effect(contract, name="asked")
    def asked(attempt: Attempt) -> None: ...

    @asked.lookup
    def _(attempt: Attempt) -> None: ...


def lookup_of_another_kind() -> None:
    @effect(lookup(lag=1), name="asked")
    def asked(attempt: Attempt) -> None: ...

    @asked.lookup
    async def _(attempt: Attempt) -> None: ...


async def async_body(attempt: Attempt) -> None: ...


BAD_EFFECTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: effect(None), "needs a contract"),
    (lambda: effect(plain_function), "needs a contract"),
    (lambda: effect(opaque())(lambda: None), "attempt"),
    (lambda: effect(opaque())(lambda text, attempt: None), "first parameter"),
    (lambda: with_lookup(opaque()), "opaque"),
    (lambda: with_lookup(same_transaction(lambda: None)), "same_transaction"),
    (lookup_of_another_kind, "must be def"),
    (lambda: effect(same_transaction(lambda: None))(async_body), "def function"),
    (lambda: effect(opaque(), timeout=0)(lambda attempt: None), "timeout"),
    (lambda: effect(opaque(), timeout=float("inf"))(lambda attempt: None), "timeout"),
    (lambda: effect(opaque(), budget=-1)(lambda attempt: None), "budget"),
    (lambda: effect(opaque(), name="a/b")(lambda attempt: None), "name"),
    (lambda: effect(opaque(), identity="x:{order}")(lambda attempt, n: None), "order"),
    (lambda: effect(opaque(), identity="x:{n.real}")(lambda attempt, n: None), "real"),
    (lambda: effect(opaque(), identity="x:{n!r}")(lambda attempt, n: None), "identity"),
    (lambda: step(name="a#b")(plain_function), "name"),
    (lambda: step(name="a\nb")(plain_function), "name"),
    (lambda: step(retries=-1)(plain_function), "retries"),
    (lambda: step(timeout=-1)(plain_function), "timeout"),
    (lambda: step(formerly="a/b")(plain_function), "name"),
    (lambda: step(ignore=("nobody",))(plain_function), "nobody"),
    (lambda: step(raises=("ValueError",))(plain_function), "raises"),
    (lambda: step(raises=int)(plain_function), "raises"),
]


@pytest.mark.parametrize(("make", "why"), BAD_EFFECTS, ids=range(len(BAD_EFFECTS)))
def test_a_decoration_that_cannot_work_is_refused_at_once(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        make()


BAD_OPENS: list[tuple[dict[str, Any], str]] = [
    ({"url": ""}, "path of a database file"),
    ({"url": "   "}, "path of a database file"),
    ({"url": "a\0b"}, "path of a database file"),
    ({"url": "mysql://host/db"}, "cannot open"),
    ({"url": "postgres:/host/db"}, "cannot open postgres:…; expected"),
    ({"url": "sqlite:agents.db"}, "cannot open sqlite:…; expected a path"),
    ({"namespace": ""}, "namespace"),
    ({"namespace": "a\nb"}, "namespace"),
    ({"durability": "fast"}, "durability"),
    ({"lease": 0}, "lease"),
    ({"lease": float("nan")}, "lease"),
    ({"grace": -1}, "grace"),
    ({"grace": float("nan")}, "grace"),
    ({"inline_bytes": -1}, "inline_bytes"),
]


@pytest.mark.parametrize(("options", "why"), BAD_OPENS, ids=range(len(BAD_OPENS)))
def test_bad_options_are_refused_before_a_file_is_made(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    path = tmp_path / "agents.db"
    with pytest.raises(UsageError, match=why):
        Surefoot(**{"url": path, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_id_or_a_wrong_word_is_explained(db: Path) -> None:
    with Surefoot(db) as sf:
        with pytest.raises(UsageError, match=r'needs id="\.\.\."'):
            sf.run(fine)
        with pytest.raises(UsageError, match="when_running"):
            sf.run(fine, id="r", when_running="maybe")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="argument"):
            sf.run(fine, 1, 2, 3, id="r")
        assert nothing_written(db)


def test_an_identity_that_is_empty_or_unprintable_sends_nothing(db: Path) -> None:
    sent: list[int] = []

    @effect(opaque(), identity="{who}", name="to who")
    def send(attempt: Attempt, who: str) -> None:
        sent.append(1)

    with Surefoot(db):
        for who in ("", "a\nb", " ", "x" * 300):
            with pytest.raises(UsageError, match="identity"):
                send(who)
    assert sent == [] and nothing_written(db)


def test_all_public_names_exist() -> None:
    assert all(hasattr(surefoot, name) for name in surefoot.__all__)
