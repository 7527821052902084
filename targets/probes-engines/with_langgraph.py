"""LangGraph: each step a node, a saver, durability `sync`, resumed with None; nodes are retried by a RetryPolicy."""

import operator
import os
import sqlite3
import sys
from typing import Annotated, TypedDict

sys.path.insert(0, os.environ["PROBES"])
import office
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

ORDER = f"refund-{office.CHARGE}"
RETRIES = None if office.OFFER == "nothing" else RetryPolicy(max_attempts=3, initial_interval=0.2, retry_on=Exception)


class State(TypedDict):
    said: Annotated[dict, operator.or_]


def names() -> list:
    """The steps of this version, from a dry run of the plan: (name, amount)."""
    listed = []

    def note(name: str, amount: int) -> dict:
        listed.append((name, amount))
        return {}

    office.drive(note)
    return listed


def graph() -> StateGraph:
    made = StateGraph(State)
    before = START
    for name, amount in names():

        def node(state: State, name=name, amount=amount) -> dict:
            if name == "approval":
                return {"said": {"approval": interrupt(f"refund {amount}?")}}
            return {"said": {name: office.perform(name, amount, ORDER)}}

        made.add_node(name, node, retry_policy=RETRIES)
        made.add_edge(before, name)
        before = name
    made.add_edge(before, END)
    return made


def main() -> None:
    saver = SqliteSaver(sqlite3.connect(os.path.join(os.environ["STATE"], "graph.db"), check_same_thread=False))
    saver.setup()
    ready = graph().compile(checkpointer=saver)
    config = {"configurable": {"thread_id": ORDER}}
    begun = bool(ready.get_state(config).values)
    try:
        state = ready.invoke(None if begun else {"said": {}}, config, durability="sync")
        while "__interrupt__" in state:
            state = ready.invoke(Command(resume="yes"), config, durability="sync")
    except Exception as error:
        office.told(error)
    said = state["said"]
    office.say(said.get("assess", {"text": "low risk"}), said.get("refund") or said.get("reimburse") or {})


main()
