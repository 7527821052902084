"""What a framework sees of a tool, and what an effect sees of it: the same function with other parameters.

A framework gets a plain function with the user's own parameters and resolved annotations. What would let it look behind
(`__wrapped__`) is gone, since what it found there would be a way around the gate.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .toolcall import under

if TYPE_CHECKING:
    from .tool import Tool


def with_attempt(tool: Tool) -> Callable[..., Any]:
    """The function as an effect wants it, with `attempt` where its own parameters begin."""
    function, at, wanted = tool.function, tool.position, tool.wants_attempt

    def own(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return args if wanted else (*args[:at], *args[at + 1 :])

    if tool.is_async:

        @functools.wraps(function)
        async def body_async(*args: Any, **kwargs: Any) -> Any:
            with under(args[at]):
                return await function(*own(args), **kwargs)

        body: Any = body_async
    else:

        @functools.wraps(function)
        def body_sync(*args: Any, **kwargs: Any) -> Any:
            with under(args[at]):
                return function(*own(args), **kwargs)

        body = body_sync
    if not wanted:
        parameters = list(inspect.signature(function).parameters.values())
        parameters.insert(at, inspect.Parameter("attempt", inspect.Parameter.POSITIONAL_OR_KEYWORD))
        if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
            parameters[at] = parameters[at].replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        body.__signature__ = inspect.Signature(parameters)
    return body


def visible(tool: Tool) -> Callable[..., Any]:
    """A plain function that looks like the user's, without `attempt`, and calls the tool."""
    function = tool.function
    if tool.is_async:

        @functools.wraps(function)
        async def shown_async(*args: Any, **kwargs: Any) -> Any:
            return await tool.call_async(*args, **kwargs)

        shown: Any = shown_async
    else:

        @functools.wraps(function)
        def shown_sync(*args: Any, **kwargs: Any) -> Any:
            return tool.call(*args, **kwargs)

        shown = shown_sync
    hints: dict[str, Any]
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        del shown.__wrapped__  # what unwraps it would find the attempt, and a way around the gate
    except (NameError, TypeError):
        hints = dict(function.__annotations__)  # names that are not known yet; frameworks look them up by __wrapped__
    signature = inspect.signature(function)
    hidden = {"attempt"} if tool.wants_attempt else set[str]()
    parameters = [
        p.replace(annotation=hints.get(p.name, p.annotation))
        for p in signature.parameters.values()
        if p.name not in hidden
    ]
    returns = hints.get("return", signature.return_annotation)
    shown.__signature__ = signature.replace(parameters=parameters, return_annotation=returns)
    shown.__annotations__ = {name: hint for name, hint in hints.items() if name not in hidden}
    shown.surefoot = tool
    shown.lookup = tool.effect.lookup if tool.effect is not None else None
    return shown


def gates_itself(code: Any, depth: int = 5) -> bool:
    """True if a framework's wrapper of a function holds one that `surefoot.tool` made."""
    if hasattr(code, "surefoot"):
        return True
    if not depth or not callable(code):
        return False
    held = [cell.cell_contents for cell in getattr(code, "__closure__", None) or () if _is_filled(cell)]
    held += [
        getattr(code, name, None) for name in ("__wrapped__", "__func__", "_invoke_tool_impl", "func", "coroutine")
    ]
    return any(gates_itself(inner, depth - 1) for inner in held if callable(inner) and not isinstance(inner, type))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
