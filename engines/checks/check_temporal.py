"""What a kill does not show: cancelling, failing, timers, heartbeats, activities in threads, workflows as new."""

import asyncio
import os
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

import surefoot
from surefoot.inside import temporal as inside

SF = surefoot.Surefoot(os.path.join(os.environ["WORLD"], "surefoot.db"))
did: list[str] = []


@surefoot.step
def note(what: str) -> int:
    did.append(what)
    return len(did)


@surefoot.workflow
def short(what: str) -> str:
    note(what)
    return what


@surefoot.workflow
async def rests(what: str) -> str:
    note(f"{what} begins")
    await surefoot.sleep(4)
    note(f"{what} ends")
    return what


@surefoot.workflow
def fails(what: str) -> str:
    note(what)
    raise LookupError(f"there is no {what}")


@surefoot.step
def dawdle() -> None:
    time.sleep(0.3)


@surefoot.workflow
def dawdles(what: str) -> str:
    note(what)
    for _ in range(100):
        dawdle()
    return what


RIDDEN = {"short": short, "rests": rests, "fails": fails, "dawdles": dawdles}


@activity.defn
async def ride(kind: str, what: str) -> str:
    return await inside.ride(SF, RIDDEN[kind], what)


@activity.defn
async def ride_again(kind: str, what: str) -> str:
    return await inside.ride(SF, RIDDEN[kind], what, per="workflow")


@activity.defn
def ride_sync(kind: str, what: str) -> str:
    return inside.ride_sync(SF, RIDDEN[kind], what)


TIMES = {"start_to_close_timeout": timedelta(minutes=2), "heartbeat_timeout": timedelta(seconds=8)}


@workflow.defn
class One:
    @workflow.run
    async def run(self, name: str, kind: str, what: str) -> str:
        return await inside.execute({"ride": ride, "ride_sync": ride_sync}[name], kind, what, **TIMES)


@workflow.defn
class Loop:
    @workflow.run
    async def run(self, name: str, left: int) -> None:
        await inside.execute({"ride": ride, "ride_again": ride_again}[name], "short", "loop", **TIMES)
        if left > 1:
            workflow.continue_as_new(args=[name, left - 1])


async def eventually(what, seconds=60.0):
    until = time.monotonic() + seconds
    while not (found := await what()):
        assert time.monotonic() < until, f"{what.__name__} did not come true: {SF.list()}"
        await asyncio.sleep(0.1)
    return found


async def main() -> None:
    client = await Client.connect(os.environ["ENGINE"])
    queue = f"checks-{uuid.uuid4()}"

    async def start(*args, kind=One.run):
        return await client.start_workflow(kind, args=args, id=f"w-{uuid.uuid4()}", task_queue=queue)

    with ThreadPoolExecutor(4) as threads:
        worker = Worker(
            client,
            task_queue=queue,
            workflows=[One, Loop],
            activities=[ride, ride_again, ride_sync],
            activity_executor=threads,
            workflow_runner=UnsandboxedWorkflowRunner(),
        )
        async with inside.waking(SF, client, every=0.2), worker:
            await checks(start)
    print("ALL RIGHT", flush=True)


async def checks(start) -> None:
    for name in ("ride", "ride_sync"):
        assert await (await start(name, "short", name)).result() == name
        print("an activity rides:", name, flush=True)

    handle = await start("ride", "rests", "nap")
    assert await handle.result() == "nap" and did.count("nap begins") == 1 and did.count("nap ends") == 1
    history = [event async for event in handle.fetch_history_events()]
    assert any(event.HasField("timer_started_event_attributes") for event in history)
    print("a timer is the workflow's to wait for, and the run goes on after it", flush=True)

    try:
        await (await start("ride", "fails", "order 9")).result()
        raise AssertionError("it did not fail")
    except WorkflowFailureError as failed:
        cause = failed.cause.cause
        assert cause.type == "LookupError" and cause.non_retryable and did.count("order 9") == 1
    print("what another try would repeat is not retried", flush=True)

    for name in ("ride", "ride_sync"):
        handle = await start(name, "dawdles", f"walk {name}")

        async def beats(handle=handle):
            pending = (await handle.describe()).raw_description.pending_activities
            return pending and pending[0].heartbeat_details.payloads and pending[0].heartbeat_details.payloads[0].data

        seen = await eventually(beats)
        assert b'"asked":' in seen.replace(b" ", b"") or b'"run":' in seen.replace(b" ", b""), seen
        await handle.cancel()
        try:
            await handle.result()
            raise AssertionError("it was not cancelled")
        except WorkflowFailureError:
            pass
        run = next(run for run in SF.list() if run.arguments.get("what") == f"walk {name}")

        async def ended(run=run):
            return str(SF.get(run.id).status) == "cancelled"

        await eventually(ended)
        print("a cancelled activity cancels its run, and beats until then:", name, flush=True)

    await (await start("ride", 3, kind=Loop.run)).result()
    assert did.count("loop") == 3
    await (await start("ride_again", 3, kind=Loop.run)).result()
    assert did.count("loop") == 4
    print("a workflow that goes on as new does new work, unless per='workflow' is said", flush=True)


asyncio.run(main())
sys.stdout.flush()
os._exit(0)
