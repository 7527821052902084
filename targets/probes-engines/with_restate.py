"""Restate: each step a `ctx.run` under its default retries; one attempt where nothing makes another one safe."""

import asyncio
import os
import sys

sys.path.insert(0, os.environ["PROBES"])
import httpx
import hypercorn.asyncio
import hypercorn.config
import office
import restate

INGRESS, ADMIN, PORT = os.environ["ENGINE"], os.environ["ADMIN"], int(os.environ["PORT"])
ORDER = os.path.basename(os.environ["STATE"])
FIRST = os.environ["LIFE"] == "1"
OPTIONS = restate.RunOptions(max_attempts=1 if office.OFFER == "nothing" else None)
settle = restate.Workflow("settle")


@settle.main()
async def run(ctx: restate.WorkflowContext) -> list:
    async def do(name: str, amount: int) -> dict:
        if name == "approval":
            return {"said": await ctx.promise("approval", type_hint=str).value()}
        return await ctx.run_typed(name, lambda: office.perform(name, amount, ctx.key()), OPTIONS)

    return await office.drive_async(do)


@settle.handler()
async def approve(ctx: restate.WorkflowSharedContext) -> None:
    await ctx.promise("approval", type_hint=str).resolve("yes")


async def ask() -> None:
    async with httpx.AsyncClient(timeout=None) as client:
        if FIRST:
            said = await client.post(f"{ADMIN}/deployments", json={"uri": f"http://127.0.0.1:{PORT}", "force": True})
            said.raise_for_status()
            (await client.post(f"{INGRESS}/settle/{ORDER}/run/send")).raise_for_status()
            if office.APPROVED_FIRST:
                (await client.post(f"{INGRESS}/settle/{ORDER}/approve")).raise_for_status()
        answer = await client.get(f"{INGRESS}/restate/workflow/settle/{ORDER}/attach")
        if answer.status_code != 200:
            office.told(RuntimeError(answer.text))
        office.say(*answer.json())


async def main() -> None:
    if os.environ["RIVALS"] and not FIRST:  # one deployment has one address: the second process only asks
        await ask()
        return
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{PORT}"]
    config.loglevel = "ERROR"
    over = asyncio.Event()
    serving = asyncio.create_task(hypercorn.asyncio.serve(restate.app([settle]), config, shutdown_trigger=over.wait))
    await ask()
    over.set()
    await serving


asyncio.run(main())
