"""One graph node with fifteen model calls under it: one, four times three side by side, and two more."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import openai
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

ROUNDS, BESIDE = 4, 3


async def ask(question: str) -> str:
    """One model call."""
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": question}])
    return answer.choices[0].message.content or ""


async def research(state: dict[str, Any]) -> dict[str, Any]:
    """The node: fifteen calls."""
    found = [await ask("plan")]
    for number in range(ROUNDS):
        found += await asyncio.gather(*(ask(f"round {number}, part {part}") for part in range(BESIDE)))
    found.append(await ask("draft"))
    found.append(await ask("answer"))
    return {"found": found}


client = openai.AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="any", max_retries=0)


async def main() -> None:
    """Run the graph on its thread; a thread that was begun goes on from its checkpoint."""
    graph = StateGraph(dict)
    graph.add_node("research", research)
    graph.add_edge(START, "research")
    graph.add_edge("research", END)
    async with AsyncSqliteSaver.from_conn_string(os.path.join(os.environ["STATE"], "graph.db")) as saver:
        compiled = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "one"}}
        begun = (await compiled.aget_state(config)).next
        result = await compiled.ainvoke(None if begun else {"question": "?"}, config, durability="sync")
    print("ANSWER", len(result["found"]), result["found"][-1])


if __name__ == "__main__":
    asyncio.run(main())
