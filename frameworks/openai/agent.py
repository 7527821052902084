"""A loop over chat completions, as the SDK's documentation shows it."""

from __future__ import annotations

import json
from typing import Any

import openai

from frameworks.kit import PROMPT, Job

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "shop",
            "description": "Do one irreversible checkout operation.",
            "parameters": {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]},
        },
    }
]


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


def run(job: Job) -> str:
    client = openai.OpenAI(base_url=job.openai_url, api_key="any", max_retries=0)
    return loop(client, lambda asked: job.press(**json.loads(asked.function.arguments)))
