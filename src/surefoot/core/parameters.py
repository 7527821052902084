"""What a function takes, and what kind of function it is, read from its code.

`inspect` takes long to import, so it is asked only about what is no plain function: what is
decorated, marked, built in, or called through an object.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from types import FunctionType
from typing import Any, cast

import msgspec

_VAR_POSITIONAL, _VAR_KEYWORD, _GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x04, 0x08, 0x20, 0x80, 0x200
"""Flags of code objects."""
REQUIRED = object()
"""The default of a parameter that has none."""


class Kind(IntEnum):
    """How a parameter is given, with the numbers of `inspect`."""

    POSITIONAL_ONLY = 0
    POSITIONAL_OR_KEYWORD = 1
    VAR_POSITIONAL = 2
    KEYWORD_ONLY = 3
    VAR_KEYWORD = 4


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a function."""

    name: str
    kind: Kind
    default: Any = REQUIRED


def _is_plain(function: Callable[..., Any]) -> bool:
    """True if nothing but its code says what it is: `functools.wraps` and marks of any kind leave an attribute."""
    return type(function) is FunctionType and not function.__dict__


def parameters_of(function: Callable[..., Any]) -> list[Parameter]:
    """Its parameters in order, as `inspect.signature` gives them."""
    if not _is_plain(function):
        import inspect

        found = inspect.signature(function).parameters.values()
        return [Parameter(p.name, Kind(p.kind), REQUIRED if p.default is p.empty else p.default) for p in found]
    plain = cast("FunctionType", function)
    code, names = plain.__code__, list(plain.__code__.co_varnames)
    by_place, only_named = names[: code.co_argcount], names[code.co_argcount :][: code.co_kwonlyargcount]
    rest = names[code.co_argcount + code.co_kwonlyargcount :]
    given = plain.__defaults__ or ()
    defaults = dict(zip(by_place[len(by_place) - len(given) :], given, strict=True)) | (plain.__kwdefaults__ or {})
    kinds = [Kind.POSITIONAL_ONLY] * code.co_posonlyargcount
    kinds += [Kind.POSITIONAL_OR_KEYWORD] * (code.co_argcount - code.co_posonlyargcount)
    named = list(zip(by_place, kinds, strict=True))
    if code.co_flags & _VAR_POSITIONAL:
        named.append((rest.pop(0), Kind.VAR_POSITIONAL))
    named += [(name, Kind.KEYWORD_ONLY) for name in only_named]
    if code.co_flags & _VAR_KEYWORD:
        named.append((rest[0], Kind.VAR_KEYWORD))
    return [Parameter(name, kind, defaults.get(name, REQUIRED)) for name, kind in named]


def is_async(function: Callable[..., Any]) -> bool:
    """True if calling it gives a coroutine."""
    if _is_plain(function):
        return bool(cast("FunctionType", function).__code__.co_flags & _COROUTINE)
    import inspect

    return inspect.iscoroutinefunction(function)


def is_generator(function: Callable[..., Any]) -> bool:
    """True if calling it gives a generator, asynchronous or not."""
    if _is_plain(function):
        return bool(cast("FunctionType", function).__code__.co_flags & (_GENERATOR | _ASYNC_GENERATOR))
    import inspect

    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
