"""smolagents: a ToolCallingAgent, and (option `code`) a CodeAgent, whose model writes Python that calls the tools."""

from __future__ import annotations

from collections.abc import Callable

from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

from frameworks.kit import PROMPT, Job


def ask(job: Job, shop: Callable[..., str], prompt: str) -> str:
    model = OpenAIModel("gpt-scripted", api_base=job.openai_url, api_key="any", client_kwargs={"max_retries": 0})
    if job.options.get("code"):
        # Without a limit of time it runs the code in this thread, and this thread knows the run.
        agent = CodeAgent(
            [tool(shop)], model, max_steps=8, verbosity_level=0, executor_kwargs={"timeout_seconds": None}
        )
    else:
        agent = ToolCallingAgent([tool(shop)], model, max_steps=8, verbosity_level=0)
    return str(agent.run(prompt))


def published(job: Job) -> str:
    def shop(op: str) -> str:
        """Do one irreversible checkout operation.

        Args:
            op: reserve, charge or confirm
        """
        return job.press(op)

    return ask(job, shop, PROMPT)


def run(job: Job) -> str:
    if "surefoot" not in job.arm:
        return published(job)
    from frameworks.ours import run_once, shop_tool

    return run_once(job, lambda prompt: ask(job, shop_tool(job), prompt))
