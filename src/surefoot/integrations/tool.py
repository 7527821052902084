"""`@tool`: a plain function for any framework, gated by its receiver's contract or journaled as read-only.

What a framework sees is a function with the user's own parameters: the key, the attempt and the recording do not show
in any schema that is made of it, so that the model is never asked for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, cast

from ..core.contract import Contract, Promises
from ..core.values import ArgumentsCodec
from ..effects.effect import DEFAULT_BUDGET_SECONDS, DEFAULT_TIMEOUT_SECONDS, Effect
from ..runtime.calls import scope
from ..runtime.step import Step, check_function, default_name
from .appearance import visible, with_attempt
from .asking import Asks, ask, ask_async
from .gate import Gate, StatusUnknown, ToolInDoubt
from .gated import contract_of, gate, gate_async, place_of, softly
from .toolcall import ToolCall, attempt, tool_call, tool_call_id

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class ToolFunction(Protocol[P, R]):
    """What `@tool` gives: the function to hand to a framework, with `surefoot`, the `Tool` behind it."""

    surefoot: Tool

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a run: once for each call of the model. Outside: a plain call, of an effect by its identity."""
        ...

    def lookup(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Register what asks the receiver when in doubt, as `@effect` does."""
        ...


class Tool:
    """The step or effect behind a decorated function, and how it is called."""

    def __init__(self, function: Callable[..., Any], contract: Contract | Promises | None, **options: Any) -> None:
        """See `tool`."""
        check_function(function, "tool")
        self.function = function
        self.name: str = options.pop("name") or default_name(function)
        self.approval: Asks | None = options.pop("approval")
        self.soft: bool = options.pop("soft")
        self.is_async = inspect.iscoroutinefunction(function)
        parameters = list(inspect.signature(function).parameters)
        self.is_method = parameters[:1] in (["self"], ["cls"])
        self.position = 1 if self.is_method else 0
        self.wants_attempt = parameters[self.position : self.position + 1] == ["attempt"]
        self.step: Step[..., Any] | None = None
        self.effect: Effect[..., Any] | None = None
        lookup = options.pop("lookup")
        if contract is None:
            self.step = Step(function, name=self.name, raises=options["raises"])
            self.arguments: ArgumentsCodec = self.step.arguments
            return
        chosen = {key: options[key] for key in ("identity", "scope", "timeout", "budget")}
        needs = self.approval is not None
        self.effect = Effect(with_attempt(self), contract, name=self.name, needs_approval=needs, **chosen)
        self.arguments = self.effect.arguments
        if lookup is not None:
            self.effect.lookup(lookup)

    def gate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Gate | None:
        """The gate of this call; None where it is a plain one."""
        place = place_of(self.name)
        if place is None:
            return None
        bound = self.arguments.bind(args[self.position :], kwargs)
        return Gate(place, self.name, self.arguments.encode(bound))

    def artifact(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a person is asked to approve."""
        if self.effect is not None:
            return self.effect.request(*args[self.position :], **kwargs)
        return {"tool": self.name, **self.arguments.bind(args[self.position :], kwargs)}

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call a `def` tool."""
        code = cast("Callable[..., Any]", self.effect or self.step)
        gate = self.gate(args, kwargs)
        if gate is None:
            return code(*args, **kwargs)

        def act() -> Any:
            if self.approval is not None:
                ask(self.approval, self.artifact(args, kwargs))
            return code(*args, **kwargs)

        try:
            return gate.run(act)
        except ToolInDoubt as stop:
            if self.soft:
                raise softly(stop) from None
            raise

    async def call_async(self, *args: Any, **kwargs: Any) -> Any:
        """Call an `async def` tool."""
        gate = self.gate(args, kwargs)
        if gate is None:
            return await cast("Callable[..., Any]", self.effect or self.step)(*args, **kwargs)

        async def act() -> Any:
            if self.approval is not None:
                await ask_async(self.approval, self.artifact(args, kwargs))
            if self.effect is not None:
                return await self.effect.call_at_once(args, kwargs)
            return await cast("Any", self.step)(*args, **kwargs)

        try:
            return await gate.run_async(act)
        except ToolInDoubt as stop:
            if self.soft:
                raise softly(stop) from None
            raise


def tool(
    contract: Contract | Promises | None = None,
    *,
    read_only: bool = False,
    identity: str | Callable[..., str] | None = None,
    scope: Any = None,
    lookup: Callable[..., Any] | None = None,
    name: str | None = None,
    approval: Asks | None = None,
    timeout: timedelta | float = DEFAULT_TIMEOUT_SECONDS,
    budget: timedelta | float = DEFAULT_BUDGET_SECONDS,
    raises: type[BaseException] | tuple[type[BaseException], ...] = (),
    soft: bool = False,
) -> Callable[[Callable[..., Any]], ToolFunction[..., Any]]:
    """Make a function a tool that any framework can call, and that a crash neither repeats nor loses.

    With a `contract` it is an effect: the intent is on disk before the body runs. Its `identity` is the business
    identity if given, else the tool_call_id of the recorded response, else its arguments and how often they were asked
    for in this call scope. With `read_only=True` it is a step: recorded once, run again after a crash inside. A first
    parameter named `attempt` is given the attempt (its key, headers, timeout) and shown to nobody; `attempt()` gives
    it too. `lookup` asks the receiver when in doubt; `approval` asks a person first; `raises` names exceptions of a
    read-only tool that come back as themselves. In doubt it stops the run by a signal that is no Exception, and
    refuses the run's next model calls; `soft=True` raises StatusUnknown instead, for frameworks that hang on signals.
    Outside a run a read-only tool is a plain call, and another needs an identity.
    """

    def decorate(function: Callable[..., Any]) -> ToolFunction[..., Any]:
        chosen = contract_of(contract, read_only, getattr(function, "__name__", "tool"))
        return cast(
            "ToolFunction[..., Any]",
            visible(
                Tool(
                    function,
                    chosen,
                    identity=identity,
                    scope=scope,
                    lookup=lookup,
                    name=name,
                    approval=approval,
                    timeout=timeout,
                    budget=budget,
                    raises=raises,
                    soft=soft,
                )
            ),
        )

    return decorate


__all__ = [
    "Asks",
    "StatusUnknown",
    "Tool",
    "ToolCall",
    "ToolFunction",
    "ToolInDoubt",
    "attempt",
    "gate",
    "gate_async",
    "scope",
    "tool",
    "tool_call",
    "tool_call_id",
]
