"""A loop over chat completions, as the SDK documents it; with Surefoot also streamed, and over responses."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import openai

import surefoot.http
from frameworks.kit import PROMPT, Job
from surefoot import Surefoot, keyed, lookup, tool, workflow
from surefoot.integrations.tool import tool_call_id

OP = {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]}
SHOP = {"name": "shop", "description": "Do one irreversible checkout operation.", "parameters": OP}
CLOCK = {"name": "clock", "description": "Tell the time.", "parameters": {"type": "object", "properties": {}}}
TOOLS: Any = [{"type": "function", "function": SHOP}]


def loop(client: openai.OpenAI, call: Any) -> str:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        answer = client.chat.completions.create(model="gpt-scripted", messages=messages, tools=TOOLS)
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for asked in message.tool_calls:
            result = call(asked)
            messages.append({"role": "tool", "tool_call_id": asked.id, "content": result})


def published(job: Job) -> str:
    client = openai.OpenAI(base_url=job.openai_url, api_key="any", max_retries=0)
    return loop(client, lambda asked: job.press(**json.loads(asked.function.arguments)))


def shop_of(job: Job) -> Any:
    if job.options.get("lookup"):

        @tool(lookup(lag=timedelta(milliseconds=100)), name="shop", timeout=2)
        def looked_up(op: str) -> str:
            return job.press(op)

        @looked_up.lookup
        def _(attempt: Any, op: str) -> str | None:
            return job.find(op)

        return looked_up

    @tool(keyed(timedelta(hours=24)), name="shop")
    def shop(attempt: Any, op: str) -> str:
        return job.press(op, attempt.key)

    return shop


def plain(job: Job) -> str:
    shop = shop_of(job)

    def call(asked: Any) -> str:
        with tool_call_id(asked.id):
            return shop(**json.loads(asked.function.arguments))

    @workflow(name="checkout")
    def checkout() -> str:
        return loop(openai.OpenAI(base_url=job.openai_url, api_key="any"), call)

    with Surefoot(job.db) as sf:
        return sf.run(checkout, id=job.run)


async def streamed(job: Job) -> str:
    """Responses, streamed, with all tool calls of a turn side by side."""

    @tool(keyed(timedelta(hours=24)), name="shop")
    async def shop(attempt: Any, op: str) -> str:
        return await asyncio.to_thread(job.press, op, attempt.key)

    @tool(read_only=True, name="clock")
    async def clock() -> str:
        return f"the time is {datetime.now(UTC).isoformat()}"

    known: dict[str, Any] = {"shop": shop, "clock": clock}
    tools: Any = [{"type": "function", "strict": False, **about} for about in (SHOP, CLOCK)]

    async def call(asked: Any) -> dict[str, Any]:
        with tool_call_id(asked.call_id):
            output = await known[asked.name](**json.loads(asked.arguments))
        return {"type": "function_call_output", "call_id": asked.call_id, "output": output}

    @workflow(name="checkout")
    async def checkout() -> str:
        client = openai.AsyncOpenAI(base_url=job.openai_url, api_key="any")
        items: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            async with client.responses.stream(model="gpt-scripted", input=items, tools=tools) as stream:
                answer = await stream.get_final_response()
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
            asked = [item for item in answer.output if item.type == "function_call"]
            if not asked:
                return answer.output_text
            items += await asyncio.gather(*(call(item) for item in asked))

    async with Surefoot(job.db) as sf:
        return await sf.run(checkout, id=job.run)


def run(job: Job) -> str:
    if job.arm == "as published":
        return published(job)
    surefoot.http.install()
    return asyncio.run(streamed(job)) if job.options.get("stream") else plain(job)
