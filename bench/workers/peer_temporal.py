"""Temporal's development server (https://github.com/temporalio/cli) with the Python SDK.

A production cluster is another thing, and was not measured. A step is an activity. The server keeps its records in a
SQLite file of its own; worker and client live in this process, and the sandbox is off, which is the faster way.
"""

import asyncio
import os
import socket
import subprocess
import sys
from datetime import timedelta

from protocol import Engine, body, main
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

QUEUE, NAMESPACE = "bench", "default"
MINUTE = timedelta(minutes=1)
TRIES, PAUSE_SECONDS = 300, 0.1


@activity.defn
async def no_op(number: int) -> dict[str, str]:
    return body(number)


@workflow.defn
class Steps:
    @workflow.run
    async def run(self, count: int) -> None:
        for number in range(count):
            await workflow.execute_activity(no_op, number, start_to_close_timeout=MINUTE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Temporal(Engine):
    def open(self) -> None:
        self.port = free_port()
        program = os.path.join(os.path.dirname(sys.executable), "temporal")
        options = ("--headless", "--ip", "127.0.0.1", "--port", str(self.port), "--log-level", "never")
        self.server = subprocess.Popen(
            [program, "server", "start-dev", *options, "--db-filename", f"{self.folder}/temporal.db"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.loop = asyncio.new_event_loop()
        try:
            self.loop.run_until_complete(self.connect())
        except BaseException:
            self.close()
            raise

    async def connect(self) -> None:
        for attempt in range(TRIES):
            try:
                self.client = await Client.connect(f"127.0.0.1:{self.port}", namespace=NAMESPACE)
                break
            except RuntimeError:
                if attempt == TRIES - 1:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
        runner = UnsandboxedWorkflowRunner()
        worker = Worker(self.client, task_queue=QUEUE, workflows=[Steps], activities=[no_op], workflow_runner=runner)
        self.working = self.loop.create_task(worker.run())

    def close(self) -> None:
        self.server.kill()
        self.server.wait()

    async def one(self, name: str, count: int) -> None:
        await self.client.execute_workflow(Steps.run, count, id=name, task_queue=QUEUE)

    def sequence(self, name: str, count: int) -> None:
        self.loop.run_until_complete(self.one(name, count))

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        self.lanes(prefix, runs, runs, count)

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        self.lanes(prefix, runs, lanes, 0)

    def lanes(self, prefix: str, runs: int, lanes: int, count: int) -> None:
        async def lane(first: int) -> None:
            for number in range(first, runs, lanes):
                await self.one(f"{prefix}-{number}", count)

        async def all_lanes() -> None:
            await asyncio.gather(*(lane(first) for first in range(lanes)))

        self.loop.run_until_complete(all_lanes())


if __name__ == "__main__":
    main(Temporal)
