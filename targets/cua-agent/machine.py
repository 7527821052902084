"""The machine that the agent uses: a screen that never changes, and three buttons wired to the shop."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cua_agent import ComputerAgent
from PIL import Image

ORDER = "81"
BUTTONS = {(210, 130): "reserve", (210, 230): "charge", (210, 330): "confirm"}
TASK = f"Complete the checkout of order {ORDER}: reserve, charge, confirm."
Click = Callable[[str], Awaitable[object]]


def post(operation: str, headers: Mapping[str, str] | None = None, timeout: float = 30.0) -> dict[str, Any]:
    """Press: one request to the shop; where it is told so, the machine dies as soon as it holds the answer."""
    head = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(f"{os.environ['SHOP']}/do/{operation}", b"{}", head)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        receipt = json.load(answer)
    if os.environ.get("TOOL_END") == operation and os.environ["LIFE"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt


def look(operation: str, key: str) -> dict[str, Any] | None:
    """Ask the shop what it did under this key."""
    with urllib.request.urlopen(f"{os.environ['SHOP']}/find/{operation}?key={key}", timeout=10) as answer:
        found = json.load(answer)["found"]
    return found[0] if found else None


def _screen() -> str:
    picture = io.BytesIO()
    Image.new("RGB", (640, 480), "white").save(picture, "PNG")
    return base64.b64encode(picture.getvalue()).decode()


def as_it_is(computer: dict[str, Any]) -> dict[str, Any]:
    """The computer, unchanged."""
    return computer


async def checkout(press: Click, wrapped: Callable[[dict[str, Any]], dict[str, Any]] = as_it_is) -> str:
    """Run the real agent on this machine; the type of its last item."""
    screen = _screen()

    async def screenshot() -> str:
        return screen

    async def environment() -> str:
        return "linux"

    async def dimensions() -> tuple[int, int]:
        return 640, 480

    async def click(x: int, y: int, button: str = "left") -> None:
        if (x, y) in BUTTONS:
            await press(BUTTONS[x, y])

    computer = {"screenshot": screenshot, "click": click, "environment": environment, "dimensions": dimensions}
    agent = ComputerAgent(
        model="openai/computer-use-preview",
        tools=[wrapped(computer)],
        api_key="scripted",
        api_base=os.environ["MODEL"] + "/v1",
        screenshot_delay=0,
        telemetry_enabled=False,
        max_retries=0,
    )
    last = ""
    async for result in agent.run(TASK):
        last = result["output"][-1].get("type", "") if result["output"] else last
    return last
