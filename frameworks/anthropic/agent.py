"""A loop over messages, as the SDK's documentation shows it; with Surefoot also streamed."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic

from frameworks.kit import PROMPT, Job
from frameworks.ours import run_once, run_once_async, shop_tool, side_by_side
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


def plain(job: Job) -> str:
    shop = shop_tool(job, name="shop")

    def call(use: Any) -> str:
        with tool_call_id(use.id):
            return shop(**use.input)

    return run_once(job, lambda prompt: loop(anthropic.Anthropic(base_url=job.models, api_key="any"), call))


def streamed(job: Job) -> str:
    """Streamed, with all tool calls of a turn side by side."""
    known = side_by_side(job)
    tools: Any = [SHOP, CLOCK]

    async def call(use: Any) -> dict[str, Any]:
        with tool_call_id(use.id):
            return {"type": "tool_result", "tool_use_id": use.id, "content": await known[use.name](**use.input)}

    async def agent(prompt: str) -> str:
        client = anthropic.AsyncAnthropic(base_url=job.models, api_key="any")
        messages: list[Any] = [{"role": "user", "content": prompt}]
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

    return run_once_async(job, agent)


def run(job: Job) -> str:
    if job.arm == "as published":
        return published(job)
    return streamed(job) if job.options.get("stream") else plain(job)
