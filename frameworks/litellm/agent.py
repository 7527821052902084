"""A loop over `litellm.completion`, as its documentation shows it; with Surefoot also async and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import litellm

from frameworks.kit import PROMPT, Job
from frameworks.ours import run_once, run_once_async, shop_tool
from surefoot.http import scope
from surefoot.integrations.tool import tool_call_id

OP = {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]}
SHOP = {"name": "shop", "description": "Do one irreversible checkout operation.", "parameters": OP}
TOOLS: Any = [{"type": "function", "function": SHOP}]
Call = Callable[[Any], str]


def options(job: Job, messages: list[Any]) -> dict[str, Any]:
    return {
        "model": "openai/gpt-scripted",
        "messages": messages,
        "tools": TOOLS,
        "api_base": job.openai_url,
        "api_key": "any",
    }


def take(messages: list[Any], message: Any, call: Call) -> str | None:
    """Do what the message asks for; its text when it asks for nothing."""
    messages.append(message.model_dump(exclude_none=True))
    asked_for = message.tool_calls or []
    messages += [{"role": "tool", "tool_call_id": asked.id, "content": call(asked)} for asked in asked_for]
    return None if message.tool_calls else message.content or ""


def loop(job: Job, call: Call) -> str:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        answer: Any = litellm.completion(**options(job, messages))
        text = take(messages, answer.choices[0].message, call)
        if text is not None:
            return text


async def loop_streamed(job: Job, call: Call) -> str:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        events: Any = await litellm.acompletion(**options(job, messages), stream=True)
        answer: Any = litellm.stream_chunk_builder([event async for event in events], messages=messages)
        text = take(messages, answer.choices[0].message, call)
        if text is not None:
            return text


def called(shop: Callable[..., str]) -> Call:
    def call(asked: Any) -> str:
        with tool_call_id(asked.id):
            return shop(**json.loads(asked.function.arguments))

    return call


async def streamed(job: Job, call: Call) -> str:
    async with scope("agent"):
        return await loop_streamed(job, call)


def run(job: Job) -> str:
    if job.arm == "as published":
        return loop(job, lambda asked: job.press(**json.loads(asked.function.arguments)))
    shop: Any = shop_tool(job, name="shop")
    if job.options.get("stream"):
        return run_once_async(job, lambda prompt: streamed(job, called(shop)))
    return run_once(job, lambda prompt: loop(job, called(shop)))
