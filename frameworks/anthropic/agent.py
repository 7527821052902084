"""A loop over messages, as the SDK's documentation shows it."""

from __future__ import annotations

from typing import Any

import anthropic

from frameworks.kit import PROMPT, Job

TOOLS: Any = [
    {
        "name": "shop",
        "description": "Do one irreversible checkout operation.",
        "input_schema": {"type": "object", "properties": {"op": {"type": "string"}}, "required": ["op"]},
    }
]


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


def run(job: Job) -> str:
    client = anthropic.Anthropic(base_url=job.models, api_key="any", max_retries=0)
    return loop(client, lambda use: job.press(**use.input))
