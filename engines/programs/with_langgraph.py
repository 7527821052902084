"""LangGraph: as published, a node for the model, one for the tools, and a saver; with Surefoot one node is the agent.

The thread is resumed with None after a crash, as its documentation says. ENGINE is a file, or a PostgreSQL URL; MODE
is the durability.
"""

import operator
import os
import queue
import sqlite3
from typing import Annotated, TypedDict

import agent
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from surefoot.inside import langgraph as inside

if not agent.PUBLISHED:
    import durable

    SF = durable.opened()
MODE = os.environ["MODE"]


class State(TypedDict):
    messages: Annotated[list, operator.add]
    answer: str


def saver():
    if os.environ["ENGINE"].startswith("postgresql"):
        import psycopg
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row

        made = PostgresSaver(
            psycopg.connect(os.environ["ENGINE"], autocommit=True, prepare_threshold=0, row_factory=dict_row)
        )
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        made = SqliteSaver(sqlite3.connect(os.environ["ENGINE"], check_same_thread=False))
    made.setup()
    return made


def model(state: State) -> dict:
    return {"messages": [agent.ask(state["messages"])]}


def tools(state: State) -> dict:
    message = state["messages"][-1]
    op, call_id = agent.wanted(message)
    key = f"{agent.ORDER}-{call_id}" if agent.KEYED_BY_ENGINE else ""
    return {"messages": agent.told(message, agent.act(op, agent.ORDER, key))[1:]}


def published() -> StateGraph:
    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda s: "tools" if agent.wanted(s["messages"][-1]) else END, ["tools", END])
    graph.add_edge("tools", "model")
    return graph


def ridden() -> StateGraph:
    def node(state: State) -> dict:
        return {"answer": inside.ride(SF, durable.checkout, agent.ORDER)}

    graph = StateGraph(State)
    graph.add_node("agent", node)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", END)
    return graph


def main() -> None:
    graph = (published() if agent.PUBLISHED else ridden()).compile(checkpointer=saver())
    config = inside.config("thread", agent.ORDER)
    begun = bool(graph.get_state(config).next)
    start = None if begun else {"messages": agent.first(agent.ORDER), "answer": ""}
    end = graph.invoke(start, config, durability=MODE)
    if agent.PUBLISHED:
        agent.finish(end["messages"][-1]["content"])
        return
    decided: queue.SimpleQueue = queue.SimpleQueue()
    with inside.waking(SF, decided.put, every=0.2):
        while graph.get_state(config).next:
            end = graph.invoke(Command(resume=True), decided.get(), durability=MODE)
    agent.finish(end["answer"])


main()
