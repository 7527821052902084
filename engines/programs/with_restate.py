"""Restate: as published, each model call and operation is a `ctx.run`; with Surefoot the whole agent is one."""

import asyncio
import contextlib
import os

import agent
import httpx
import hypercorn.asyncio
import hypercorn.config
import restate

from surefoot.inside import restate as inside

if not agent.PUBLISHED:
    import durable

    SF = durable.opened()
INGRESS, ADMIN, PORT = os.environ["ENGINE"], os.environ["ADMIN"], int(os.environ["PORT"])
service = restate.Service("checkout")


@service.handler()
async def published(ctx: restate.Context, order: str) -> str:
    messages = agent.first(order)
    while True:
        message = await ctx.run_typed("ask", lambda messages=messages: agent.ask(messages))
        wanted = agent.wanted(message)
        if wanted is None:
            return message["content"]
        key = str(ctx.uuid()) if agent.KEYED_BY_ENGINE else ""
        receipt = await ctx.run_typed("act", lambda wanted=wanted, key=key: agent.act(wanted[0], order, key))
        messages += agent.told(message, receipt)


@service.handler()
async def ridden(ctx: restate.Context, order: str) -> str:
    return await inside.ride(ctx, SF, durable.checkout, order)


async def main() -> None:
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{PORT}"]
    config.loglevel = "ERROR"
    over = asyncio.Event()
    serving = asyncio.create_task(hypercorn.asyncio.serve(restate.app([service]), config, shutdown_trigger=over.wait))
    with contextlib.nullcontext() if agent.PUBLISHED else inside.waking(SF, INGRESS, every=0.2):
        async with httpx.AsyncClient(timeout=None) as client:
            if agent.LIFE == 1:
                answer = await client.post(
                    f"{ADMIN}/deployments", json={"uri": f"http://127.0.0.1:{PORT}", "force": True}
                )
                answer.raise_for_status()
            handler = "published" if agent.PUBLISHED else "ridden"
            # the same key attaches to the invocation that is under way
            answer = await client.post(
                f"{INGRESS}/checkout/{handler}", json=agent.ORDER, headers={"Idempotency-Key": agent.ORDER}
            )
            answer.raise_for_status()
            agent.finish(answer.json())
    over.set()
    await serving


asyncio.run(main())
