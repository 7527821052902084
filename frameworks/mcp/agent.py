"""A loop over chat completions whose one tool is a tool of an MCP server, of mcp 1.x or 2.x."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai

from frameworks.kit import PROMPT, Job

try:
    from mcp.client.client import Client
    from mcp.server.mcpserver import Context, MCPServer
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.shared import memory

    Client = memory.create_connected_server_and_client_session

KEY = "surefoot/idempotency-key"
DECLARED = {"surefoot/effect": {"contract": "keyed", "window_seconds": 86400}}


def meta_of(context: Context) -> dict[str, Any]:
    meta = context.request_context.meta
    return dict(meta.model_dump() if hasattr(meta, "model_dump") else meta or {})


def server_of(job: Job) -> Any:
    server = MCPServer("shop")
    how = job.options.get("how", "")

    @server.tool(meta=DECLARED if how == "declared" else None)
    async def shop(op: str, context: Context) -> str:
        """Do one irreversible checkout operation."""
        key = meta_of(context).get(KEY, "") if how == "declared" else ""
        return await asyncio.to_thread(job.press, op, key)

    @server.tool()
    def find(op: str) -> str:
        """What was done."""
        return job.find(op) or ""

    return server


async def loop(job: Job, tools: Any, called: Any) -> str:
    client = openai.AsyncOpenAI(base_url=job.openai_url, api_key="any", max_retries=0)
    listed = (await tools.list_tools()).tools
    offered: Any = [
        {
            "type": "function",
            "function": {"name": t.name, "parameters": getattr(t, "input_schema", None) or t.inputSchema},
        }
        for t in listed
        if t.name == "shop"
    ]
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    while True:
        answer = await client.chat.completions.create(model="gpt-scripted", messages=messages, tools=offered)
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for asked in message.tool_calls:
            result = await called(tools, asked)
            messages.append({"role": "tool", "tool_call_id": asked.id, "content": result.content[0].text})


async def plain(tools: Any, asked: Any) -> Any:
    return await tools.call_tool(asked.function.name, json.loads(asked.function.arguments))


def connected(job: Job) -> Any:
    server = server_of(job)
    return Client(getattr(server, "_mcp_server", server))


async def published(job: Job) -> str:
    async with connected(job) as client:
        return await loop(job, client, plain)


async def surefoot(job: Job) -> str:
    import surefoot.http
    from surefoot import RunWaiting, Surefoot, lookup, workflow
    from surefoot.integrations.mcp import Rule, durable
    from surefoot.integrations.tool import tool_call_id

    surefoot.http.install()
    rules: Any = {"lookup": {"shop": Rule(contract=lookup(lag=0.2), ask="find", timeout=2.0)}}.get(job.options["how"])

    async def called(tools: Any, asked: Any) -> Any:
        with tool_call_id(asked.id):
            return await plain(tools, asked)

    async with connected(job) as client, Surefoot(job.db) as sf:

        @workflow
        async def checkout() -> str:
            with surefoot.http.scope("checkout"):
                return await loop(job, durable(client, server="shop", rules=rules), called)

        try:
            return await sf.run(checkout, id=job.run)
        except RunWaiting as waiting:  # a task group of anyio would wrap it
            stopped = waiting
    raise stopped


def run(job: Job) -> str:
    return asyncio.run(surefoot(job) if "how" in job.options else published(job))
