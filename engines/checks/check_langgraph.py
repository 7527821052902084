"""An async node, workflows of both kinds, an interrupt that is resumed too early, and what names the work."""

import asyncio
import os
import sys
from typing import TypedDict

from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

import surefoot
from surefoot.inside import Parked
from surefoot.inside import langgraph as inside

SF = surefoot.Surefoot(os.path.join(os.environ["WORLD"], "surefoot.db"))
did: list[str] = []


@surefoot.step
def note(what: str) -> int:
    did.append(what)
    return len(did)


@surefoot.workflow
async def hears(what: str) -> str:
    note(what)
    return await surefoot.wait_for("word", str)


@surefoot.workflow
def short(what: str) -> str:
    note(what)
    return what


class State(TypedDict):
    what: str
    answer: str


def graph(node):
    made = StateGraph(State)
    made.add_node("agent", node)
    made.add_edge(START, "agent")
    made.add_edge("agent", END)
    return made.compile(checkpointer=MemorySaver())


async def waits(state: State) -> dict:
    return {"answer": await inside.ride_async(SF, hears, state["what"])}


async def plain(state: State) -> dict:
    return {"answer": await inside.ride_async(SF, short, state["what"])}


def in_def(state: State) -> dict:
    return {"answer": inside.ride(SF, short, state["what"])}


def start(what: str) -> State:
    return {"what": what, "answer": ""}


async def main() -> None:
    asking, config = graph(waits), inside.config("t", "m-1")
    for given in (start("ear"), Command(resume=True), Command(resume=True)):
        stopped = await asking.ainvoke(given, config)
        parked = Parked.read(stopped["__interrupt__"][0].value)
        assert parked.run == "t/m-1/agent"
    SF.signal("t/m-1/agent", "word", "go on")
    assert (await asking.ainvoke(Command(resume=True), config))["answer"] == "go on" and did == ["ear"]
    print("an interrupt that is resumed too early is one again; then the run goes on", flush=True)

    both = graph(plain)
    for _ in range(2):
        assert (await both.ainvoke(start("one"), inside.config("t", "m-2")))["answer"] == "one"
    assert did.count("one") == 1
    await both.ainvoke(start("one"), inside.config("t", "m-3"))
    assert did.count("one") == 2
    print("the same invocation is the same work, another one is new work", flush=True)

    for _ in range(2):
        graph(in_def).invoke(start("two"), {"configurable": {"thread_id": "t"}})
    assert did.count("two") == 2
    print("without an invocation each visit of a node is new work", flush=True)
    print("ALL RIGHT", flush=True)


asyncio.run(main())
sys.stdout.flush()
os._exit(0)
