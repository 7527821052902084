"""An agent of the Claude Agent SDK: the bundled program, with an empty home and nothing but loopback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query
from claude_agent_sdk import tool as sdk_tool

from frameworks.kit import PROMPT, Job

NOWHERE = "http://127.0.0.1:9"
"""Whatever the program wants besides the model goes here, where nobody listens."""


def options_for(job: Job, base_url: str, tool: Any | None) -> ClaudeAgentOptions:
    home, work = Path(job.folder) / "home", Path(job.folder) / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    servers: Any = {} if tool is None else {"shop": create_sdk_mcp_server("shop", tools=[tool])}
    return ClaudeAgentOptions(
        mcp_servers=servers,
        allowed_tools=["Bash"] if tool is None else ["mcp__shop__shop"],
        model="claude-scripted",
        max_turns=12,
        cwd=str(work),
        setting_sources=[],
        system_prompt="Do the checkout.",
        env={
            "ANTHROPIC_BASE_URL": base_url,
            "ANTHROPIC_API_KEY": "any",
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home / "config"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",  # else tools of MCP servers are found by a search first
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost",
            "PRESS": str(Path(__file__).with_name("press.py")),
            "SHOP": job.shop,
        },
    )


def shop_tool(press: Any) -> Any:
    @sdk_tool("shop", "Do one irreversible checkout operation: reserve, charge or confirm.", {"op": str})
    async def shop(arguments: dict[str, Any]) -> dict[str, Any]:
        receipt = await asyncio.to_thread(press, arguments["op"])
        return {"content": [{"type": "text", "text": receipt}]}

    return shop


async def answer(options: ClaudeAgentOptions) -> str:
    said = ""
    async for message in query(prompt=PROMPT, options=options):
        if isinstance(message, ResultMessage):
            said = message.result or ""
    return said


def published(job: Job) -> str:
    return asyncio.run(answer(options_for(job, job.models, shop_tool(job.press))))


def surefoot(job: Job) -> str:
    from datetime import timedelta

    from surefoot import Surefoot, keyed, lookup, opaque, workflow
    from surefoot.http import scope
    from surefoot.integrations.claude_agent import Guard, recorded_models
    from surefoot.integrations.policy import Policy
    from surefoot.integrations.tool import attempt

    async def find(_: object, op: str) -> str | None:
        return job.find(op)

    how = job.options["how"]
    says: Any = {
        "keyed": keyed(timedelta(hours=24)),
        "lookup": Policy(contract=lookup(lag=0.2), lookup=find, timeout=2.0),
        "opaque": opaque(),
        "bash": None,
    }[how]

    def press(op: str) -> str:
        return job.press(op, attempt().key if how == "keyed" else "")

    @workflow
    async def checkout() -> str:
        with scope("checkout"), recorded_models(job.models) as url:
            guard = Guard(tools={"shop": says} if says else {})
            tool = guard.tool(shop_tool(press)) if says else None
            return await answer(guard.options(options_for(job, url, tool)))

    async def main() -> str:
        async with Surefoot(job.db) as sf:
            return await sf.run(checkout, id=job.run)

    return asyncio.run(main())


def run(job: Job) -> str:
    return surefoot(job) if "how" in job.options else published(job)
