"""What an agent of the matrix has at hand: its job, and the one irreversible thing that its tool does.

Only the standard library is imported here, so that it stands in every environment.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROMPT = "Complete the checkout for order 81: reserve, charge, confirm."
WAITING_EXIT = 75
"""How an agent ends that cannot go on before a person has answered."""
OPERATIONS = ("reserve", "charge", "confirm")


@dataclass(kw_only=True)
class Job:
    """One life of the agent. `folder` is what it keeps between lives; `life` counts from 1."""

    arm: str
    models: str
    shop: str
    folder: str
    life: int
    run: str = "order-81"
    tool_end: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def openai_url(self) -> str:
        return f"{self.models}/v1"

    @property
    def db(self) -> str:
        return str(Path(self.folder) / "agents.db")

    def press(self, op: str, key: str = "") -> str:
        """One irreversible operation at the shop; a repeat is recognised by its key, and only so."""
        headers = {"content-type": "application/json", **({"idempotency-key": key} if key else {})}
        request = urllib.request.Request(f"{self.shop}/do/{op}", json.dumps({"op": op}).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            receipt = json.loads(answer.read())["receipt"]
        if self.tool_end == op and self.life == 1:
            os.killpg(0, signal.SIGKILL)  # the reply is here, and the framework has not got it yet
        return receipt

    def find(self, op: str) -> str | None:
        """Ask the shop what it did: the receipt, or None."""
        with urllib.request.urlopen(f"{self.shop}/find/{op}", timeout=60) as answer:
            found = json.loads(answer.read())["found"]
        return found[0] if found else None


def start(job: dict[str, Any], run: Any, output: str) -> None:
    """In the agent's process: a session of its own, all output into a file, then the agent."""
    if os.getpgid(0) != os.getpid():
        os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        answer = run(Job(**job))
    except BaseException as error:
        if "RunWaiting" in [kind.__name__ for kind in type(error).__mro__]:
            os.write(1, f"\nwaiting: {error}\n".encode())
            os._exit(WAITING_EXIT)
        raise
    os.write(1, f"\nfinal: {answer}\n".encode())


QUIET = {
    "ANONYMIZED_TELEMETRY": "false",
    "AGNO_TELEMETRY": "false",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TESTING": "true",  # else it asks after a first crew whether to show traces, and waits twenty seconds
    "CREWAI_TRACING_ENABLED": "false",
    "CUA_TELEMETRY": "off",
    "CUA_TELEMETRY_ENABLED": "false",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_PROXY": "*",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
"""Turns off what would call home."""


def quiet() -> None:
    """Be quiet, before a framework is imported."""
    os.environ.update(QUIET)
