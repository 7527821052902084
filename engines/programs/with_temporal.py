"""Temporal: as published, each model call and each operation is an activity; with Surefoot the whole agent is one."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import agent
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from surefoot.inside import temporal as inside

if not agent.PUBLISHED:
    import durable

    SF = durable.opened()
SHORT = timedelta(seconds=8)


@activity.defn
def ask(messages: list) -> dict:
    return agent.ask(messages)


@activity.defn
def act(op: str, order: str) -> str:
    info = activity.info()
    return agent.act(op, order, f"{info.workflow_run_id}-{info.activity_id}" if agent.KEYED_BY_ENGINE else "")


@workflow.defn
class Published:
    @workflow.run
    async def run(self, order: str) -> str:
        messages = agent.first(order)
        while True:
            message = await workflow.execute_activity(ask, messages, start_to_close_timeout=SHORT)
            wanted = agent.wanted(message)
            if wanted is None:
                return message["content"]
            receipt = await workflow.execute_activity(act, args=[wanted[0], order], start_to_close_timeout=SHORT)
            messages += agent.told(message, receipt)


@activity.defn
async def checkout(order: str) -> str:
    return await inside.ride(SF, durable.checkout, order)


@workflow.defn
class Inside:
    @workflow.run
    async def run(self, order: str) -> str:
        return await inside.execute(
            checkout, order, start_to_close_timeout=timedelta(minutes=10), heartbeat_timeout=timedelta(seconds=4)
        )


async def serve(client: Client) -> None:
    queue = f"queue-{agent.ORDER}"
    kind = Published if agent.PUBLISHED else Inside
    with ThreadPoolExecutor(4) as threads:
        worker = Worker(
            client,
            task_queue=queue,
            workflows=[Published, Inside],
            activities=[ask, act, checkout],
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with worker:
            handle = await client.start_workflow(
                kind.run,
                agent.ORDER,
                id=agent.ORDER,
                task_queue=queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            )
            agent.finish(await handle.result())


async def main() -> None:
    client = await Client.connect(os.environ["ENGINE"])
    if agent.PUBLISHED:
        await serve(client)
        return
    async with inside.waking(SF, client, every=0.2):
        await serve(client)


asyncio.run(main())
