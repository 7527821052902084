"""Exceptions as values: they come back as themselves or as StepFailed, and a record is never code."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.core.errors import Abandoned, Disagreement, Refused, StepFailed, UsageError, ValueRefused
from surefoot.core.failures import MESSAGE_CHARACTERS, encode_failure, rebuild_failure

BUILTINS = sorted(
    {kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)},
    key=lambda kind: kind.__name__,
)
PLAIN = [kind for kind in BUILTINS if issubclass(kind, Exception) and not issubclass(kind, BaseExceptionGroup)]
HARD = {"UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError"}
ARGUMENTS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=4)


def made(kind: type[BaseException]) -> BaseException:
    if kind is UnicodeDecodeError:
        return kind("ascii", b"\xff", 0, 1, "why")
    if kind is UnicodeEncodeError:
        return kind("ascii", "\u20ac", 0, 1, "why")
    if kind is UnicodeTranslateError:
        return kind("x", 0, 1, "why")
    if issubclass(kind, BaseExceptionGroup):
        return kind("several", [ValueError("one") if kind is ExceptionGroup else KeyboardInterrupt()])
    return kind("went wrong") if issubclass(kind, SyntaxError) else kind("went wrong", 7)


def again(error: BaseException, *raises: type[BaseException]) -> BaseException:
    return rebuild_failure(encode_failure(error), "charge", raises)


@pytest.mark.parametrize("kind", PLAIN)
def test_every_builtin_exception_comes_back_as_itself_with_its_arguments_or_as_step_failed(kind: Any) -> None:
    error = made(kind)
    back = again(error)
    if any(not isinstance(arg, str | int) for arg in error.args):
        assert isinstance(back, StepFailed) and back.type_name == kind.__name__
    else:
        assert type(back) is kind and back.args == error.args and str(back) == str(error)


@pytest.mark.parametrize("kind", [kind for kind in BUILTINS if kind not in PLAIN])
def test_what_would_end_the_process_or_holds_others_comes_back_as_step_failed(kind: Any) -> None:
    back = again(made(kind))
    assert isinstance(back, StepFailed)
    assert (back.step, back.type_name) == ("charge", kind.__name__)


@pytest.mark.parametrize("kind", PLAIN)
def test_an_exception_without_arguments_comes_back_too(kind: Any) -> None:
    if kind.__name__ not in HARD:
        assert type(again(kind())) is kind and again(kind()).args == ()


@given(st.lists(ARGUMENTS | st.floats(allow_nan=False, allow_infinity=False)))
def test_plain_arguments_are_kept_exactly(args: list[Any]) -> None:
    back = again(ValueError(*args))
    assert type(back) is ValueError
    assert [(type(arg), arg) for arg in back.args] == [(type(arg), arg) for arg in args]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -float("inf")])
def test_an_argument_that_json_does_not_have_is_kept_in_the_message(odd: float) -> None:
    back = again(ValueError(odd))
    assert type(back) is ValueError and str(back) == str(ValueError(odd))


@pytest.mark.parametrize("arg", [object(), b"x", ["a"], {"a": 1}, (1,), ValueError("inner"), 1j])
def test_an_argument_that_is_no_plain_value_is_kept_as_the_message(arg: object) -> None:
    back = again(RuntimeError(arg))
    assert type(back) is RuntimeError and back.args == (str(arg),)


def test_text_that_is_not_valid_unicode_is_shown_escaped() -> None:
    back = again(ValueError("bad \ud800 text", "\udfff"))
    assert type(back) is ValueError and "\\ud800" in str(back)


def test_a_very_long_message_is_cut() -> None:
    back = again(ValueError(["x" * 10_000]))
    assert len(str(back)) == MESSAGE_CHARACTERS


class CardDeclined(Exception):
    def __init__(self, code: int, note: str = "") -> None:
        super().__init__(code, note)
        self.code = code


class TwoParts(Exception):
    def __init__(self, one: object, two: object) -> None:
        super().__init__("only one")


class Angry(Exception):
    def __init__(self, *args: object) -> None:
        if len(args) != 2:
            raise RuntimeError("no")
        super().__init__("just this")


class Mute(Exception):
    def __str__(self) -> str:
        return "my own words"


def test_an_exception_that_the_step_names_comes_back_as_itself() -> None:
    back = again(CardDeclined(7, "no funds"), CardDeclined)
    assert isinstance(back, CardDeclined) and (back.code, back.args) == (7, (7, "no funds"))
    assert str(again(Mute(), Mute)) == "my own words"


def test_one_that_the_step_does_not_name_is_step_failed_and_says_what_it_was() -> None:
    back = again(CardDeclined(7, "no funds"))
    assert isinstance(back, StepFailed)
    assert (back.step, back.type_name, back.message) == ("charge", "CardDeclined", "(7, 'no funds')")


@pytest.mark.parametrize("error", [TwoParts(1, 2), Angry(1, 2)])
def test_one_that_cannot_be_made_again_from_its_arguments_is_step_failed(error: Exception) -> None:
    back = again(error, type(error))
    assert isinstance(back, StepFailed) and back.type_name == type(error).__name__


@pytest.mark.parametrize(
    "error",
    [
        StepFailed("inner", "Boom", "why"),
        StepFailed("inner", "Boom", "why", "workflow"),
        Refused("no funds"),
        Abandoned("gave up"),
        Disagreement("id", "held", "asked", "run 'r'"),
        ValueRefused("result", "$.a", "NaN"),
        UsageError("wrong"),
    ],
)
def test_our_own_errors_come_back_with_all_they_say(error: Exception) -> None:
    back = again(error)
    assert type(back) is type(error) and str(back) == str(error)
    assert {**vars(back)} == {**vars(error)}


def test_rebuilding_twice_gives_the_same_so_live_and_replay_agree() -> None:
    for error in (ValueError("a", 1), CardDeclined(7), KeyError("k"), OSError(2, "gone"), TwoParts(1, 2)):
        live = again(error, CardDeclined, TwoParts)
        replayed = again(live, CardDeclined, TwoParts)
        assert (type(live), live.args, str(live)) == (type(replayed), replayed.args, str(replayed))


def hostile(type_name: str, *args: Any, message: str = "m") -> bytes:
    return msgspec.json.encode({"type": type_name, "message": message, "args": list(args)})


CALLABLES = ["exec", "eval", "open", "print", "__import__", "compile", "input", "type", "object", "int", "breakpoint"]
DOTTED = ["os.system", "subprocess.Popen", "builtins.ValueError", "antigravity.x", "pickle.loads", "", ".", "a" * 999]
SYSTEM = ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException", "ExceptionGroup", "BaseExceptionGroup"]


@pytest.mark.parametrize("name", [*CALLABLES, *DOTTED, *SYSTEM, "Suspend", "Halt", "CardDeclined", "Damaged"])
def test_a_hostile_record_calls_and_imports_nothing(name: str) -> None:
    before = set(sys.modules)
    back = rebuild_failure(hostile(name, "raise SystemExit(9)"), "charge", ())
    assert isinstance(back, StepFailed)
    assert (back.step, back.type_name, back.message) == ("charge", name, "m")
    assert set(sys.modules) == before


def test_a_class_of_that_name_in_another_module_is_never_touched() -> None:
    calls: list[object] = []

    class Trap(Exception):
        def __init__(self, *args: object) -> None:
            calls.append(args)

    Trap.__qualname__ = "Trap"
    assert isinstance(rebuild_failure(hostile("Trap", "x"), "charge", ()), StepFailed)
    assert calls == []
    assert isinstance(rebuild_failure(hostile("Trap", "x"), "charge", (Trap,)), Trap)


@pytest.mark.parametrize("args", [[[1, [2]]], [{"a": 1}], [None] * 50, ["x" * 10_000], [1e308]])
@pytest.mark.parametrize("name", ["ValueError", "UnicodeDecodeError", "OSError", "SyntaxError", "ImportError"])
def test_hostile_arguments_give_an_exception_and_never_raise_one(name: str, args: list[Any]) -> None:
    back = rebuild_failure(hostile(name, *args), "charge", ())
    assert isinstance(back, StepFailed) or type(back).__name__ == name


@pytest.mark.parametrize("kind", PLAIN)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])  # slow is what a busy machine is
@given(args=st.lists(ARGUMENTS, max_size=6))
def test_no_arguments_make_a_builtin_anything_but_itself_or_its_own_kind(kind: Any, args: list[Any]) -> None:
    back = rebuild_failure(hostile(kind.__name__, *args), "charge", ())
    assert isinstance(back, kind | StepFailed)
    str(back)
