"""Async workflows, two rides in one workflow, a failure, and a ride that is called where it cannot be one."""

import asyncio
import os
import sys
import time

from dbos import DBOS, SetWorkflowID

import surefoot
from surefoot.inside import dbos as inside

SF = surefoot.Surefoot(os.environ["ENGINE"])
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
async def hears(what: str) -> str:
    note(what)
    return await surefoot.wait_for("word", str)


@surefoot.workflow
def fails(what: str) -> str:
    note(what)
    raise LookupError(f"there is no {what}")


@DBOS.workflow()
def twice(what: str) -> list:
    return [inside.ride(SF, short, what), inside.ride(SF, short, what)]


@DBOS.workflow()
async def waits(what: str) -> str:
    return await inside.ride_async(SF, hears, what)


@DBOS.workflow()
def failing(what: str) -> str:
    return inside.ride(SF, fails, what)


def rows() -> None:
    with SetWorkflowID("w-1"):
        assert twice("one") == ["one", "one"] and did.count("one") == 2
    print("two rides in one workflow are two runs", flush=True)
    try:
        with SetWorkflowID("w-2"):
            failing("order 9")
        raise AssertionError("it did not fail")
    except LookupError:
        assert did.count("order 9") == 1
    print("what another try would repeat is not retried", flush=True)
    try:
        inside.ride(SF, short, "nowhere")
        raise AssertionError("it was taken")
    except surefoot.UsageError:
        pass
    print("outside a workflow it is refused", flush=True)


def waiting():
    while not (found := SF.list("waiting")):
        time.sleep(0.1)
    return found[0]


async def main() -> None:
    with inside.waking(SF, every=0.2):
        with SetWorkflowID("w-3"):
            handle = await DBOS.start_workflow_async(waits, "ear")
        run = await asyncio.to_thread(waiting)
        await asyncio.to_thread(SF.signal, run.id, "word", "go on")
        assert await asyncio.wait_for(handle.get_result(), 40) == "go on" and did.count("ear") == 1
    print("a message that the run waits for reaches the workflow through the waker", flush=True)
    print("ALL RIGHT", flush=True)


DBOS(config={
    "name": "checks", "system_database_url": os.environ["ENGINE"], "log_level": "ERROR",
    "application_version": "1", "run_admin_server": False,
})  # fmt: skip
DBOS.launch()
rows()
asyncio.run(main())
sys.stdout.flush()
os._exit(0)
