"""LangGraph (https://github.com/langchain-ai/langgraph) with SqliteSaver or PostgresSaver and durability="sync".

`graph`: one superstep per step, the state holds only the last value. `functional`: an entrypoint that calls tasks,
which is replayed on resume as a Surefoot workflow is. "sync" is its one setting that is durable before the next step.
"""

import concurrent.futures
import sqlite3
from typing import Any, TypedDict

from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from protocol import Engine, body, main


class State(TypedDict):
    number: int
    value: dict[str, str]


@task
def no_op(number: int) -> dict[str, str]:
    return body(number)


class LangGraph(Engine):
    kinds = ("graph", "functional")

    def open(self) -> None:
        self.saver = self.postgres() if self.url else self.sqlite()
        self.saver.setup()
        self.compiled: dict[int, Any] = {}

    def sqlite(self) -> Any:
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver(sqlite3.connect(f"{self.folder}/langgraph.db", check_same_thread=False))

    def postgres(self) -> Any:
        """A saver locks its one connection; with a pool the threads of many runs write side by side."""
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        keywords = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        return PostgresSaver(ConnectionPool(self.url, min_size=1, max_size=10, kwargs=keywords, open=True))

    def program(self, count: int) -> Any:
        if count not in self.compiled:
            self.compiled[count] = self.functional(count) if self.kind == "functional" else self.graph(count)
        return self.compiled[count]

    def functional(self, count: int) -> Any:
        @entrypoint(checkpointer=self.saver)
        def steps(_: Any) -> None:
            for number in range(count):
                no_op(number).result()

        return steps

    def graph(self, count: int) -> Any:
        """The smallest run of a graph has one node; with no steps to do, it does nothing."""

        def node(state: State) -> dict[str, Any]:
            return {"number": state["number"] + 1, "value": body(state["number"]) if count else {}}

        graph = StateGraph(State)
        graph.add_node("step", node)
        graph.add_edge(START, "step")
        graph.add_conditional_edges("step", lambda state: "step" if state["number"] < count else END, ["step", END])
        return graph.compile(checkpointer=self.saver)

    def invoke(self, name: str, count: int, *, again: bool = False) -> None:
        start: Any = "start" if self.kind == "functional" else {"number": 0, "value": {}}
        config = {"configurable": {"thread_id": name}, "recursion_limit": count + 10}
        self.program(count).invoke(None if again else start, config, durability="sync")

    def sequence(self, name: str, count: int) -> None:
        self.invoke(name, count)

    def resume(self, name: str, count: int) -> None:
        self.invoke(name, count, again=True)

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        self.program(count)
        with concurrent.futures.ThreadPoolExecutor(runs) as pool:
            list(pool.map(lambda number: self.invoke(f"{prefix}-{number}", count), range(runs)))

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        self.program(0)
        with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
            list(pool.map(lambda number: self.invoke(f"{prefix}-{number}", 0), range(runs)))


if __name__ == "__main__":
    main(LangGraph)
