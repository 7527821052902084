"""What adapters are told of a tool that they did not define: what a repeat of it does, and how to ask.

`"read"` is a tool that changes nothing, a contract one that does; a `Policy` says more; `False` is a tool that is not
gated, such as one that runs another agent. Nothing said is `opaque()`: after a crash inside it a person is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, cast

import msgspec

from ..core.contract import Contract, Promises, opaque
from ..core.errors import UsageError
from ..core.ids import fill_identity
from ..effects.attempt import Attempt
from ..effects.effect import DEFAULT_BUDGET_SECONDS, DEFAULT_TIMEOUT_SECONDS
from .asking import Asks


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's contract, and what its doubts need.

    `identity` is a template over the arguments, such as "order:{order}"; `lookup` asks the receiver, given the attempt
    and the arguments by name, and is `async def` where the tool runs in an event loop; `approval` asks a person first.
    """

    contract: Contract | Promises
    identity: str | None = None
    lookup: Callable[..., Any] | None = None
    approval: Asks | None = None
    timeout: timedelta | float = DEFAULT_TIMEOUT_SECONDS
    budget: timedelta | float = DEFAULT_BUDGET_SECONDS

    def options(
        self, arguments: Mapping[str, Any], shape: Callable[[Any], Any] = lambda found: found
    ) -> dict[str, Any]:
        """What `gate` is told besides the contract. `shape` makes a recorded result of what a lookup finds."""
        lookup = cast("Callable[..., Any]", self.lookup)

        def shaped(found: Any) -> Any:
            return None if found is None else shape(found)

        def ask(attempt: Attempt) -> Any:
            return shaped(lookup(attempt, **arguments))

        async def ask_async(attempt: Attempt) -> Any:
            return shaped(await lookup(attempt, **arguments))

        asks = ask_async if is_async(lookup) else ask
        return {
            "identity": fill_identity(self.identity, dict(arguments)) if self.identity else None,
            "lookup": asks if self.lookup is not None else None,
            "approval": self.approval,
            "timeout": self.timeout,
            "budget": self.budget,
        }


Says = Policy | Contract | Promises | str | bool


class Reads(msgspec.Struct, frozen=True):
    """Of a tool that changes nothing."""

    contract: None = None

    def options(self, arguments: Mapping[str, Any], shape: Callable[[Any], Any] | None = None) -> dict[str, Any]:
        """None."""
        return {}


def is_async(function: Any) -> bool:
    """True for an `async def` function."""
    import inspect

    return inspect.iscoroutinefunction(function)


def policy_of(said: Says | None, tool: str) -> Policy | Reads | None:
    """The policy of a tool; None: it is not gated. UsageError for what says nothing."""
    if said is False:
        return None
    if said == "read":
        return Reads()
    if isinstance(said, Policy):
        return said
    if said is None:
        return Policy(contract=opaque())
    if not isinstance(said, Contract | Promises):
        raise UsageError(
            f"tool {tool!r}: expected a contract such as keyed(...), a Policy, 'read' or False; found {said!r}"
        )
    return Policy(contract=said)
