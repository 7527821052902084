"""Inside a LangGraph node: one visit of a node is one run, and the graph is interrupted while the run is parked.

A thread lives through many invocations, and a checkpoint that was not on disk is gone with the process, so neither the
thread nor the checkpoint names the work. The invocation does: an id that the caller gives (`config(...)`), such as that
of the message it answers, and gives again when it starts the graph again after a crash. Without one the run is named by
LangGraph's own task id, which is the same only if the graph is resumed from the checkpoint before this node: with
durability="sync" and `invoke(None, ...)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..core.errors import UsageError
from ..runtime.app import Surefoot
from .parked import Parked, leave_address, run_id_of
from .riding import AnyWorkflow, Done, attempt, attempt_async
from .waking import Waker

INVOCATION = "surefoot_invocation"


def config(thread: str, invocation: str, **configurable: Any) -> dict[str, Any]:
    """What to invoke a graph with: the same thread and invocation again mean the same work."""
    return {"configurable": {**configurable, "thread_id": thread, INVOCATION: invocation}}


def run_id(part: str = "") -> str:
    """The id of this node's run; UsageError outside a node of a graph that has a thread.

    A node that an invocation visits more than once says which visit this is with `part`, from the graph's state.
    """
    try:
        held: Any = import_module("langgraph.config").get_config()
    except RuntimeError:
        held = {}
    asked: dict[str, Any] = held.get("configurable", {})
    thread, node = asked.get("thread_id"), held.get("metadata", {}).get("langgraph_node")
    if not thread or not node:
        raise UsageError("this is not a node of a LangGraph graph that was invoked with a thread_id; use config(...)")
    if invocation := asked.get(INVOCATION):
        return run_id_of(str(thread), str(invocation), node, *([part] if part else []))
    return run_id_of(str(thread), asked["checkpoint_ns"], *([part] if part else []))


def ride(sf: Surefoot, workflow: AnyWorkflow, *args: Any, part: str = "", id: str | None = None, **kwargs: Any) -> Any:
    """In a `def` node: run a `def` workflow, resume it, or return its result.

    While the run is parked the graph is interrupted with `Parked.plain()`; `invoke(Command(resume=...))` looks again,
    with any value.
    """
    own = id or run_id(part)
    while True:
        done = attempt(sf, workflow, args, kwargs, own)
        if isinstance(done, Done):
            return done.value
        _interrupt(sf, own, done)


async def ride_async(
    sf: Surefoot, workflow: AnyWorkflow, *args: Any, part: str = "", id: str | None = None, **kwargs: Any
) -> Any:
    """The same in an `async def` node, for workflows of either kind."""
    own = id or run_id(part)
    while True:
        done = await attempt_async(sf, workflow, args, kwargs, own)
        if isinstance(done, Done):
            return done.value
        await asyncio.to_thread(_leave, sf, own)
        import_module("langgraph.types").interrupt(done.plain())


def _leave(sf: Surefoot, own: str) -> None:
    asked = import_module("langgraph.config").get_config()["configurable"]
    leave_address(sf, own, "langgraph", {"thread": str(asked["thread_id"]), "invocation": asked.get(INVOCATION)})


def _interrupt(sf: Surefoot, own: str, parked: Parked) -> None:
    """Leave the node here; when the graph is resumed, the first of these returns, and the run is looked at again."""
    _leave(sf, own)
    import_module("langgraph.types").interrupt(parked.plain())


@contextmanager
def waking(sf: Surefoot, resume: Callable[[dict[str, Any]], object], *, every: float = 1.0) -> Generator[Waker]:
    """Call `resume(config)` for each parked run that may go on: invoke the graph with `Command(resume=True)` there."""

    def poke(run_id: str, address: dict[str, Any]) -> None:
        asked = {"thread_id": address["thread"]}
        if address["invocation"]:
            asked[INVOCATION] = address["invocation"]
        resume({"configurable": asked})

    with Waker(sf, "langgraph", poke, every=every) as waker:
        yield waker
