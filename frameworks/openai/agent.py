"""A loop over chat completions, as the SDK documents it; with Surefoot also streamed, and over responses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai

from frameworks.kit import PROMPT, Job
from frameworks.ours import run_once, run_once_async, shop_tool, side_by_side
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


def plain(job: Job) -> str:
    shop = shop_tool(job, name="shop")

    def call(asked: Any) -> str:
        with tool_call_id(asked.id):
            return shop(**json.loads(asked.function.arguments))

    return run_once(job, lambda prompt: loop(openai.OpenAI(base_url=job.openai_url, api_key="any"), call))


def streamed(job: Job) -> str:
    """Responses, streamed, with all tool calls of a turn side by side."""
    known = side_by_side(job)
    tools: Any = [{"type": "function", "strict": False, **about} for about in (SHOP, CLOCK)]

    async def call(asked: Any) -> dict[str, Any]:
        with tool_call_id(asked.call_id):
            output = await known[asked.name](**json.loads(asked.arguments))
        return {"type": "function_call_output", "call_id": asked.call_id, "output": output}

    async def agent(prompt: str) -> str:
        client = openai.AsyncOpenAI(base_url=job.openai_url, api_key="any")
        items: list[Any] = [{"role": "user", "content": prompt}]
        while True:
            async with client.responses.stream(model="gpt-scripted", input=items, tools=tools) as stream:
                answer = await stream.get_final_response()
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
            asked = [item for item in answer.output if item.type == "function_call"]
            if not asked:
                return answer.output_text
            items += await asyncio.gather(*(call(item) for item in asked))

    return run_once_async(job, agent)


def run(job: Job) -> str:
    if job.arm == "as published":
        return published(job)
    return streamed(job) if job.options.get("stream") else plain(job)
