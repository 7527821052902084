"""An agent of the Claude Agent SDK: the bundled program, with an empty home and nothing but loopback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query
from claude_agent_sdk import tool as sdk_tool

from frameworks.kit import PROMPT, Job

NOWHERE = "http://127.0.0.1:9"
"""Whatever the program wants besides the model goes here, where nobody listens."""


def environment(job: Job, base_url: str) -> dict[str, str]:
    """An empty home, and nothing that the program does by itself."""
    home = Path(job.folder) / "home"
    home.mkdir(exist_ok=True)
    return {
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
    }


def work_of(job: Job) -> str:
    """The folder that the program works in: its requests name it."""
    work = Path(job.folder) / "work"
    work.mkdir(exist_ok=True)
    return str(work)


def options_for(job: Job, base_url: str, tool: Any | None) -> ClaudeAgentOptions:
    servers: Any = {} if tool is None else {"shop": create_sdk_mcp_server("shop", tools=[tool])}
    return ClaudeAgentOptions(
        mcp_servers=servers,
        allowed_tools=["Bash"] if tool is None else ["mcp__shop__shop"],
        model="claude-scripted",
        max_turns=12,
        cwd=work_of(job),
        setting_sources=[],
        system_prompt="Do the checkout.",
        env=environment(job, base_url),
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


def behind_proxy(job: Job) -> str:
    """As published, at another address; what its tool does is an effect with a name of its own."""
    from datetime import timedelta

    from surefoot import Surefoot, effect, keyed

    @effect(keyed(timedelta(hours=24)), identity="order-81:{op}")
    def shop(attempt: Any, op: str) -> str:
        return job.press(op, attempt.key)

    with Surefoot(job.db):
        return asyncio.run(answer(options_for(job, job.models, shop_tool(shop))))


def program_behind_proxy(job: Job) -> str:
    """The program without the SDK, as anybody starts it; its shell runs a script whose one action is an effect."""
    program = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    told = ["--model", "claude-scripted", "--max-turns", "12", "--allowedTools", "Bash", "--setting-sources", ""]
    python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    more = {"PRESS_ONCE_DB": job.db, "PATH": python, "PYTHONPATH": os.environ["PYTHONPATH"]}
    done = subprocess.run(
        [program, "-p", PROMPT, *told],
        cwd=work_of(job),
        env={**environment(job, job.models), **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def run(job: Job) -> str:
    match job.options.get("how"):
        case None:
            return published(job)
        case "proxy":
            return behind_proxy(job)
        case "program":
            return program_behind_proxy(job)
        case _:
            return surefoot(job)
