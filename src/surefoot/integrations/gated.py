"""The functional form: gate something that a framework would call, without decorating it.

What runs is an ordinary effect, or for read-only tools an ordinary step, whose body is the framework's own call. Its
arguments are recorded as the model gave them, so that a repeat under the key is a repeat of the same request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, cast

from ..core.contract import Contract, Promises
from ..core.errors import UsageError
from ..core.values import encode_canonical
from ..effects.attempt import Attempt
from ..effects.effect import DEFAULT_BUDGET_SECONDS, DEFAULT_TIMEOUT_SECONDS, Effect
from ..runtime import calls
from ..runtime.calls import Place
from ..runtime.step import Step
from .asking import Asks, ask, ask_async
from .gate import UNKNOWN, Gate, StatusUnknown, ToolInDoubt
from .toolcall import under


class Arguments:
    """The arguments of a gated call as its effect sees them: recorded, compared, and known to the body already."""

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """By name."""
        return kwargs

    def encode(self, bound: dict[str, Any]) -> bytes:
        """Canonical JSON."""
        return encode_canonical(bound, "the arguments of a tool")

    def restore(self, content: bytes, bound: dict[str, Any] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """None are passed: the body holds those that were recorded, which `bind` and the digest made sure of."""
        return (), {}


class Gated(Effect[..., Any]):
    """An effect that exists for one call: its body belongs to that call, so nobody finds it by its name later."""

    def __init__(self, function: Callable[..., Any], contract: Contract | Promises, **options: Any) -> None:
        """See `gate`."""
        super().__init__(function, contract, **options)
        self.arguments = cast("Any", Arguments())

    def register(self) -> None:
        """Not."""


def contract_of(contract: Contract | Promises | None, read_only: bool, name: str) -> Contract | Promises | None:
    """The contract, or None for a read-only tool; UsageError unless exactly one was said."""
    if read_only != (contract is None):
        raise UsageError(
            f"tool {name!r}: say what a repeat does: a contract such as keyed(...), natural(), lookup(...) or opaque() "
            "for a tool that changes something, or read_only=True for one that does not; found "
            + ("both" if read_only else "neither")
        )
    return contract


def place_of(name: str) -> Place | None:
    """Where in a run the caller is; None where a tool is a plain call: outside any run, or inside a body."""
    place = calls.place(f"tool {name!r}")
    return None if place is None or place.plain else place


class Wanted:
    """What is to be gated, and how; the same for `gate` and `gate_async`."""

    def __init__(
        self,
        name: str,
        contract: Contract | Promises | None,
        arguments: Mapping[str, Any],
        call: Callable[[], Any],
        *,
        tool_call_id: str | None = None,
        identity: str | None = None,
        lookup: Callable[[Attempt], Any] | None = None,
        approval: Asks | None = None,
        timeout: timedelta | float = DEFAULT_TIMEOUT_SECONDS,
        budget: timedelta | float = DEFAULT_BUDGET_SECONDS,
        raises: tuple[type[BaseException], ...] = (),
    ) -> None:
        """See `gate`."""
        self.name, self.contract, self.call = name, contract, call
        self.arguments = dict(arguments)
        self.tool_call_id, self.identity, self.lookup, self.approval = tool_call_id, identity, lookup, approval
        self.raises = raises
        self.options = {"timeout": timeout, "budget": budget, "needs_approval": approval is not None}

    def gate(self, place: Place) -> Gate:
        """This call's gate."""
        content = encode_canonical(self.arguments, f"the arguments of tool {self.name!r}")
        return Gate(place, self.name, content, self.tool_call_id)

    def effect(self, body: Callable[[Attempt], Any]) -> Gated:
        """The effect of this call, with `body` to make an attempt."""
        assert self.contract is not None
        identity = self.identity

        def chosen(**_: Any) -> str:
            return identity or ""

        made = Gated(body, self.contract, name=self.name, identity=chosen if identity else None, **self.options)
        if self.lookup is not None:
            made.lookup(self.lookup)
        return made


def gate(
    name: str, contract: Contract | Promises | None, arguments: Mapping[str, Any], call: Callable[[], Any], **how: Any
) -> Any:
    """Run `call` once for this call of the model, under `contract`; its result as it is recorded (JSON).

    `contract` None: a read-only tool, journaled as a step. Options: `tool_call_id`, `identity` (a business identity),
    `lookup` (given the attempt), `approval` (an `Asks`), `timeout`, `budget`, `raises`. In the body `attempt()` has the
    key. Raises what the call raised, `Refused` or `Denied`; a signal when it is in doubt, which also stops the run's
    model calls. Durable when it returns: the outcome. A crash inside leaves an intent, settled by contract.
    """
    wanted = Wanted(name, contract, arguments, call, **how)
    place = place_of(name)
    if contract is None:
        return _read(wanted, place)

    def body(attempt: Attempt) -> Any:
        with under(attempt):
            return call()

    effect = wanted.effect(body)
    if place is None:
        return effect(**wanted.arguments)

    def act() -> Any:
        if wanted.approval is not None:
            ask(wanted.approval, effect.request(**wanted.arguments))
        return effect(**wanted.arguments)

    return wanted.gate(place).run(act)


def _read(wanted: Wanted, place: Place | None) -> Any:
    if place is None:
        return wanted.call()
    call = wanted.call

    def body(**arguments: Any) -> Any:
        return call()

    step: Step[..., Any] = Step(body, name=wanted.name, raises=wanted.raises)

    def act() -> Any:
        if wanted.approval is not None:
            ask(wanted.approval, {"tool": wanted.name, **wanted.arguments})
        return step(**wanted.arguments)

    return wanted.gate(place).run(act)


async def gate_async(
    name: str,
    contract: Contract | Promises | None,
    arguments: Mapping[str, Any],
    call: Callable[[], Awaitable[Any]],
    **how: Any,
) -> Any:
    """`gate` for a `call` that is awaited."""
    wanted = Wanted(name, contract, arguments, call, **how)
    place = place_of(name)
    if contract is None:
        return await _read_async(wanted, place)

    async def body(attempt: Attempt) -> Any:
        with under(attempt):
            return await call()

    effect = wanted.effect(body)
    if place is None:
        return await cast("Awaitable[Any]", effect(**wanted.arguments))

    async def act() -> Any:
        if wanted.approval is not None:
            await ask_async(wanted.approval, effect.request(**wanted.arguments))
        return await effect.call_at_once((), wanted.arguments)

    return await wanted.gate(place).run_async(act)


async def _read_async(wanted: Wanted, place: Place | None) -> Any:
    call = wanted.call
    if place is None:
        return await call()

    async def body(**arguments: Any) -> Any:
        return await call()

    step: Step[..., Any] = Step(body, name=wanted.name, raises=wanted.raises)

    async def act() -> Any:
        if wanted.approval is not None:
            await ask_async(wanted.approval, {"tool": wanted.name, **wanted.arguments})
        return await step(**wanted.arguments)

    return await wanted.gate(place).run_async(act)


def softly(stop: ToolInDoubt) -> StatusUnknown:
    """The stop as an ordinary exception; the run's model calls are refused already."""
    return StatusUnknown(f"{UNKNOWN}. {stop.reason}")
