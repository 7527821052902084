"""A loop over messages, as the SDK's documentation shows it; with Surefoot also streamed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import anthropic

import surefoot.http
from frameworks.kit import PROMPT, Job
from surefoot import Surefoot, keyed, lookup, tool, workflow
from surefoot.integrations.tool import tool_call_id

OP = {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]}
SHOP = {"name": "shop", "description": "Do one irreversible checkout operation.", "input_schema": OP}
CLOCK = {"name": "clock", "description": "Tell the time.", "input_schema": {"type": "object", "properties": {}}}
TOOLS: Any = [SHOP]


def loop(client: anthropic.Anthropic, call: Any) -> str:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        answer = client.messages.create(model="claude-scripted", max_tokens=1000, messages=messages, tools=TOOLS)
        messages.append({"role": "assistant", "content": answer.content})
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return answer.content[0].text
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": call(use)} for use in uses]
        messages.append({"role": "user", "content": results})


def published(job: Job) -> str:
    client = anthropic.Anthropic(base_url=job.models, api_key="any", max_retries=0)
    return loop(client, lambda use: job.press(**use.input))


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

    def call(use: Any) -> str:
        with tool_call_id(use.id):
            return shop(**use.input)

    @workflow(name="checkout")
    def checkout() -> str:
        return loop(anthropic.Anthropic(base_url=job.models, api_key="any"), call)

    with Surefoot(job.db) as sf:
        return sf.run(checkout, id=job.run)


async def streamed(job: Job) -> str:
    """Streamed, with all tool calls of a turn side by side."""

    @tool(keyed(timedelta(hours=24)), name="shop")
    async def shop(attempt: Any, op: str) -> str:
        return await asyncio.to_thread(job.press, op, attempt.key)

    @tool(read_only=True, name="clock")
    async def clock() -> str:
        return f"the time is {datetime.now(UTC).isoformat()}"

    known: dict[str, Any] = {"shop": shop, "clock": clock}
    tools: Any = [SHOP, CLOCK]

    async def call(use: Any) -> dict[str, Any]:
        with tool_call_id(use.id):
            return {"type": "tool_result", "tool_use_id": use.id, "content": await known[use.name](**use.input)}

    @workflow(name="checkout")
    async def checkout() -> str:
        client = anthropic.AsyncAnthropic(base_url=job.models, api_key="any")
        messages: list[Any] = [{"role": "user", "content": PROMPT}]
        while True:
            async with client.messages.stream(
                model="claude-scripted", max_tokens=1000, messages=messages, tools=tools
            ) as stream:
                answer = await stream.get_final_message()
            messages.append({"role": "assistant", "content": answer.content})
            uses = [block for block in answer.content if block.type == "tool_use"]
            if not uses:
                return answer.content[0].text
            messages.append({"role": "user", "content": await asyncio.gather(*(call(use) for use in uses))})

    async with Surefoot(job.db) as sf:
        return await sf.run(checkout, id=job.run)


def run(job: Job) -> str:
    if job.arm == "as published":
        return published(job)
    surefoot.http.install()
    return asyncio.run(streamed(job)) if job.options.get("stream") else plain(job)
