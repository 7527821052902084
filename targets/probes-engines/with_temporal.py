"""Temporal: each step an activity under its default retries; one attempt where nothing makes another one safe."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

sys.path.insert(0, os.environ["PROBES"])
import office
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

ORDER = f"refund-{os.path.basename(os.environ['STATE'])}"
PATIENCE = timedelta(seconds=office.TIMEOUT + 4)
RETRIES = RetryPolicy(maximum_attempts=1) if office.OFFER == "nothing" else None


def made(name: str):
    @activity.defn(name=name)
    def step(amount: int) -> dict:
        return office.perform(name, amount, activity.info().workflow_id)

    return step


@workflow.defn
class Settle:
    def __init__(self) -> None:
        self.approved = False

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self) -> list:
        async def do(name: str, amount: int) -> dict:
            if name == "approval":
                await workflow.wait_condition(lambda: self.approved)
                return {}
            return await workflow.execute_activity(
                name, amount, start_to_close_timeout=PATIENCE, retry_policy=RETRIES, result_type=dict
            )

        return await office.drive_async(do)


async def main() -> None:
    client = await Client.connect(os.environ["ENGINE"])
    steps = [made(name) for name in ("check_policy", "assess", office.REFUND, "mail")]
    with ThreadPoolExecutor(4) as threads:
        async with Worker(
            client,
            task_queue=ORDER,
            workflows=[Settle],
            activities=steps,
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            handle = await client.start_workflow(
                Settle.run, id=ORDER, task_queue=ORDER, id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING
            )
            if office.APPROVED_FIRST and os.environ["LIFE"] == "1":
                await handle.signal(Settle.approve)
            try:
                office.say(*await handle.result())
            except Exception as error:
                office.told(error.__cause__ or error)


asyncio.run(main())
