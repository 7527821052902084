"""An agent without any framework, that can be told to be wrong in one way."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from frameworks.kit import PROMPT, Job

TOOL = {"type": "function", "function": {"name": "shop", "parameters": {"type": "object", "properties": {}}}}


def ask(job: Job, messages: list[Any]) -> Any:
    body = {"model": "m", "messages": messages, "tools": [TOOL]}
    headers = {"content-type": "application/json", "authorization": "Bearer any"}
    request = urllib.request.Request(f"{job.openai_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["choices"][0]["message"]


def run(job: Job) -> str:
    wrong = job.options.get("wrong", "")
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        message = ask(job, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return "nothing to say" if wrong == "answer" else message["content"]
        for call in message["tool_calls"]:
            op = json.loads(call["function"]["arguments"])["op"]
            key = f"{job.run}:{op}" if job.options.get("keys") else ""
            skipped = wrong == "skips" and op == "confirm"
            content = "receipt:confirm:0" if skipped else job.press(op, key)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
