"""cua-agent's ComputerAgent on a machine with three buttons; each press is irreversible."""

from __future__ import annotations

import asyncio
import base64
import io
from datetime import timedelta
from typing import Any

from cua_agent import ComputerAgent
from cua_agent.computers.custom import CustomComputerHandler
from PIL import Image

from frameworks.kit import PROMPT, Job

BUTTONS = {(210, 130): "reserve", (210, 230): "charge", (210, 330): "confirm"}


def screen() -> str:
    """It never changes: the receipt comes by mail."""
    picture = io.BytesIO()
    Image.new("RGB", (640, 480), "white").save(picture, "PNG")
    return base64.b64encode(picture.getvalue()).decode()


def machine(job: Job, key: Any = lambda: "") -> dict[str, Any]:
    async def click(x: int, y: int, button: str = "left") -> None:
        if (x, y) in BUTTONS:
            await asyncio.to_thread(job.press, BUTTONS[x, y], key())

    return {"screenshot": screen, "click": click, "environment": "linux", "dimensions": (640, 480)}


async def ask(job: Job, computer: Any, prompt: str) -> str:
    agent = ComputerAgent(
        model="openai/computer-use-preview",
        tools=[computer],
        api_key="any",
        api_base=job.openai_url,
        screenshot_delay=0,
        telemetry_enabled=False,
        max_retries=0,
    )
    said = ""
    async for result in agent.run(prompt):
        for item in result["output"]:
            if item.get("type") == "message":
                said = item["content"][0]["text"]
    return said


def run(job: Job) -> str:
    return durable(job) if "surefoot" in job.arm else asyncio.run(ask(job, machine(job), PROMPT))


def durable(job: Job) -> str:
    import surefoot.http
    from surefoot import Surefoot, keyed, lookup, opaque, workflow
    from surefoot.integrations import cua
    from surefoot.integrations.policy import Policy
    from surefoot.integrations.tool import attempt

    surefoot.http.install()
    is_keyed = not (job.options.get("lookup") or job.options.get("opaque"))
    computer: Any = machine(job, (lambda: attempt().key) if is_keyed else lambda: "")

    async def seen(attempt: Any, x: int, y: int, button: str) -> Any:
        return job.find(BUTTONS[x, y])

    click: Any = keyed(window=timedelta(hours=24))
    if job.options.get("lookup"):
        click = Policy(contract=lookup(lag=timedelta(milliseconds=50)), lookup=seen, timeout=1.0)
    elif job.options.get("opaque"):
        click = opaque()
    if job.options.get("handler"):
        computer = CustomComputerHandler(computer)

    @workflow
    async def checkout(prompt: str) -> str:
        async with surefoot.http.scope("agent"):
            return await ask(job, cua.durable(computer, rules={"click": click}), prompt)

    async def main() -> str:
        async with Surefoot(job.db) as sf:
            return await sf.run(checkout, PROMPT, id=job.run)

    return asyncio.run(main())
