"""cua-agent: a computer whose actions are gated and whose screenshots are recorded.

    agent = ComputerAgent(model, tools=[durable(computer, rules={"click": keyed(...)})])

The handler is the only place that can suppress an action: callbacks of the agent only watch. Model calls are recorded
below, at HTTP (`surefoot.http.install()`), so on replay the model asks for the same actions in the same order, and what
was done is not done again. The computer has to outlive the agent: a screen that died with it is not brought back.

A click is known by its arguments and how often they were asked for (the model's call ids do not reach a handler), or by
the business identity of a `Policy`. What an action means on the other side only its owner knows: unless `rules` say
more, one that was cut off is in doubt, and a person decides. Moving, scrolling and waiting are repeated.
"""

from __future__ import annotations

import base64
import inspect
import io
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from ..core.contract import natural
from ..core.errors import UsageError
from .gated import gate_async
from .policy import Policy, Says, policy_of

READS = frozenset({"screenshot", "get_environment", "get_dimensions", "get_current_url", "environment", "dimensions"})
HARMLESS = frozenset({"move", "scroll", "wait"})
Named = Literal["bytes", "plain", "tuple"]


def durable(computer: Any, *, rules: Mapping[str, Says] | None = None, default: Says | None = None) -> Any:
    """The same computer for a `ComputerAgent`: each action happens once, each screenshot is what it was.

    `computer` is a handler, or the dict of functions that cua-agent takes. `rules` says by method name what a repeat
    does: a contract, a `Policy` (with a lookup, an identity, an approval), "read", or False for not gated; `default`
    says it for actions that are not named. In the code of an action `attempt()` (of `integrations.tool`) has the key.
    Outside a run what only reads is a plain call, and an action is refused unless its policy has an identity.
    UsageError for a rule of a method that the computer does not have.
    """
    said = dict(rules or {})
    names: set[str] = set(cast("dict[str, Any]", computer)) if isinstance(computer, dict) else _methods(computer)
    unknown = sorted(set(said) - names)
    if unknown:
        raise UsageError(f"rules name {', '.join(unknown)}; this computer has {', '.join(sorted(names))}")
    if isinstance(computer, dict):
        functions = cast("dict[str, Any]", computer)
        return {name: _gated(name, held, _says(name, said, default)) for name, held in functions.items()}
    made = {name: _method(name, _says(name, said, default)) for name in names}
    return type(f"Durable{type(computer).__name__}", (_Computer,), made)(computer)


class _Computer:
    """Stands in for a handler; what is no method of it is passed through."""

    def __init__(self, computer: Any) -> None:
        self.inner = computer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _methods(computer: Any) -> set[str]:
    return {
        name
        for name in dir(computer)
        if not name.startswith("_") and inspect.iscoroutinefunction(getattr(computer, name))
    }


def _says(name: str, said: dict[str, Says], default: Says | None) -> Says | None:
    if name in said:
        return said[name]
    return "read" if name in READS else natural() if name in HARMLESS else default


def _method(name: str, says: Says | None) -> Any:
    async def method(self: _Computer, *args: Any, **kwargs: Any) -> Any:
        return await _call(name, getattr(self.inner, name), says, args, kwargs)

    method.__name__ = name
    return method


def _gated(name: str, held: Any, says: Says | None) -> Any:
    """One entry of the dict: a function, or a plain value such as the dimensions."""
    if not callable(held):
        return held

    async def function(*args: Any, **kwargs: Any) -> Any:
        return await _call(name, held, says, args, kwargs)

    function.__name__ = name
    return function


async def _call(name: str, code: Callable[..., Any], says: Says | None, args: Any, kwargs: dict[str, Any]) -> Any:
    policy = policy_of(says, name)

    async def act() -> Any:
        value = code(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    if policy is None:
        return await act()

    async def packed() -> Any:
        return _pack(await act())

    arguments = _bound(code, args, kwargs)
    options = policy.options(arguments)
    contract = policy.contract if isinstance(policy, Policy) else None
    return _unpack(await gate_async(f"computer.{name}", contract, arguments, packed, **options))


def _bound(code: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, defaults included, so that two ways to say the same are the same."""
    try:
        bound = inspect.signature(code).bind(*args, **kwargs)
    except (TypeError, ValueError):  # the call itself will say what is wrong with it
        return {**{f"argument{place}": value for place, value in enumerate(args)}, **kwargs}
    bound.apply_defaults()
    return dict(bound.arguments)


def _pack(value: Any) -> Any:
    """A result as JSON that says what it was: pictures come back as bytes, which is what they are sent as."""
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if hasattr(value, "save") and hasattr(value, "size"):  # a picture of Pillow
        picture = io.BytesIO()
        value.save(picture, format="PNG")
        return {"bytes": base64.b64encode(picture.getvalue()).decode()}
    if isinstance(value, tuple):
        return {"tuple": list(cast("tuple[Any, ...]", value))}
    return {"plain": value}


def _unpack(value: Any) -> Any:
    """What `_pack` was given, as far as JSON holds it."""
    if not isinstance(value, dict):  # what a lookup or a person said
        return value
    held = cast("dict[Named, Any]", value)
    if "bytes" in held:
        return base64.b64decode(held["bytes"])
    if "tuple" in held:
        return tuple(held["tuple"])
    return held["plain"] if "plain" in held else cast("Any", value)
