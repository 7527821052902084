"""The part with Surefoot that the recipes share: model calls at HTTP, one tool under a contract, one run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import surefoot.http
from surefoot import Surefoot, keyed, lookup, opaque, tool, workflow
from surefoot.integrations.tool import attempt

from .kit import PROMPT, Job


def shop_tool(job: Job, **options: Any) -> Callable[..., str]:
    """The tool: with a key that the shop honours, or with none and a shop that can be asked (`lookup`) or not."""
    if job.options.get("lookup"):

        @tool(lookup(lag=timedelta(milliseconds=50)), lookup=lambda attempt, op: job.find(op), timeout=1.0, **options)
        def shop(op: str) -> str:
            """Do one irreversible checkout operation.

            Args:
                op: reserve, charge or confirm
            """
            return job.press(op)

    elif job.options.get("opaque"):

        @tool(opaque(), **options)
        def shop(op: str) -> str:
            """Do one irreversible checkout operation.

            Args:
                op: reserve, charge or confirm
            """
            return job.press(op)

    else:

        @tool(keyed(window=timedelta(hours=24)), **options)
        def shop(op: str) -> str:
            """Do one irreversible checkout operation.

            Args:
                op: reserve, charge or confirm
            """
            return job.press(op, attempt().key)

    return shop


def run_once(job: Job, agent: Callable[[str], str]) -> str:
    """The whole agent, as one run."""
    surefoot.http.install()
    checkout = workflow(name="checkout")(agent)
    with Surefoot(job.db) as sf:
        return sf.run(checkout, PROMPT, id=job.run)
