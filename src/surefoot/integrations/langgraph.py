"""LangGraph's own pauses, answered from the one inbox.

    result = run(graph, {"messages": [...]}, config, approvals=Asks(by="analyst", within=timedelta(days=3)))

`interrupt()` ends the graph with a question; here it is asked in the inbox, and the graph resumes with the answer. The
graph needs a checkpointer for that, and one in memory is enough: after a restart, and after a wait, the whole graph
runs again over what is recorded. A thread that was left in the middle would not, so it is forgotten, or refused.
"""

# The framework is not installed where this is checked, so nothing is known of its types.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportUnknownLambdaType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.types import Command

from ..core.errors import Denied, UsageError
from .approving import Pause, decide, decide_async
from .asking import Asks


def _pauses(interrupts: Sequence[Any]) -> list[list[Pause]]:
    """What each interrupt asks: the tool calls of LangChain's approval middleware, or any value."""
    asked: list[list[Pause]] = []
    for interrupt in interrupts:
        match interrupt.value:
            case {"action_requests": list(actions)}:
                asked.append([Pause(name=a["name"], arguments=a["args"], tool_call_id=None) for a in actions])
            case {"type": "tool_approval", "name": name, "args": args, "tool_call_id": id}:
                asked.append([Pause(name=name, arguments=args, tool_call_id=id)])
            case value:
                asked.append([Pause(name="interrupt", arguments={"value": value}, tool_call_id=None)])
    return asked


def _answer(value: Any, decided: Sequence[Denied | None]) -> Any:
    """What an interrupt is resumed with: LangChain's decisions, or whether the value was approved."""
    decisions = [{"type": "approve"} if why is None else {"type": "reject", "message": str(why)} for why in decided]
    match value:
        case {"action_requests": list()}:
            return {"decisions": decisions}
        case {"type": "tool_approval"}:
            return decisions[0]
        case _:
            return decided[0] is None


def _resume(interrupts: Sequence[Any], asked: list[list[Pause]], decided: list[Denied | None]) -> Command[Any]:
    answers: dict[str, Any] = {}
    rest = iter(decided)
    for interrupt, pauses in zip(interrupts, asked, strict=True):
        answers[interrupt.id] = _answer(interrupt.value, [next(rest) for _ in pauses])
    return Command(resume=answers)


def _left(graph: Any, state: Any) -> bool:
    """True if the thread was left in the middle, in memory; UsageError where a checkpoint on disk says so."""
    if not state.next:
        return False
    if type(graph.checkpointer).__name__ in ("InMemorySaver", "MemorySaver"):
        return True
    raise UsageError(
        f"the graph's thread has a checkpoint before {', '.join(state.next)}, and would go on there, past what this "
        "run has recorded. Inside a run a graph starts from the beginning: give it another thread_id, or an "
        "InMemorySaver"
    )


def run(graph: Any, input: Any, config: Any = None, *, approvals: Asks, **options: Any) -> Any:
    """`graph.invoke`, in which each interrupt waits for its decision in the inbox. Suspends the run meanwhile."""
    if _left(graph, graph.get_state(config)):
        graph.checkpointer.delete_thread(config["configurable"]["thread_id"])
    while True:
        result = graph.invoke(input, config, **options)
        interrupts = result.get("__interrupt__") if isinstance(result, dict) else None
        if not interrupts:
            return result
        asked = _pauses(interrupts)
        input = _resume(interrupts, asked, decide(approvals, [pause for pauses in asked for pause in pauses]))


async def run_async(graph: Any, input: Any, config: Any = None, *, approvals: Asks, **options: Any) -> Any:
    """The same with `graph.ainvoke`."""
    if _left(graph, await graph.aget_state(config)):
        await graph.checkpointer.adelete_thread(config["configurable"]["thread_id"])
    while True:
        result = await graph.ainvoke(input, config, **options)
        interrupts = result.get("__interrupt__") if isinstance(result, dict) else None
        if not interrupts:
            return result
        asked = _pauses(interrupts)
        decided = await decide_async(approvals, [pause for pauses in asked for pause in pauses])
        input = _resume(interrupts, asked, decided)
