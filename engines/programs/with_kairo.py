"""kairo on SQLite: as published, each model call and operation is an action, and what acts is `real`, which stops for
review after a crash; where the shop honours keys it is `unprotected`, kairo's word for what may be repeated. With
Surefoot the whole agent is one such action.

No module is needed to ride an engine: this does it with the parts of `surefoot.inside`.
"""

import asyncio
import os
import sys
from contextlib import nullcontext

import agent
import wasmtime
from kairo_sdk import EmbeddedBackend, Kairo, SQLiteStore, TimedOutError

from surefoot.inside import Done, Parked, Waker, attempt, leave_address, look_seconds

if not agent.PUBLISHED:
    import durable

    SF = durable.opened()
CACHING = wasmtime.Config()
CACHING.cache = True  # its core is compiled at each start; the compiler keeps what it made
PLAIN_ENGINE = wasmtime.Engine
wasmtime.Engine = lambda: PLAIN_ENGINE(CACHING)


def published(k: Kairo) -> None:
    @k.action("ask", effect="unprotected")
    def ask(messages, ctx):
        return agent.ask(messages)

    @k.action("act", effect="unprotected" if agent.KEYED_BY_ENGINE else "real")
    def act(op, ctx):
        return agent.act(op, agent.ORDER, f"{agent.ORDER}-{op}" if agent.KEYED_BY_ENGINE else "")

    @k.workflow("agent")
    async def run(ctx, order):
        messages = agent.first(order)
        while True:
            message = await ctx.call("ask", messages)
            wanted = agent.wanted(message)
            if wanted is None:
                return message["content"]
            messages = [*messages, *agent.told(message, await ctx.call("act", wanted[0]))]


def ridden(k: Kairo) -> None:
    @k.action("ride", effect="unprotected")
    def ride(looks, ctx):
        done = attempt(SF, durable.checkout, (agent.ORDER,), {}, agent.ORDER)
        if isinstance(done, Done):
            return {"value": done.value}
        # on every pass: the same address twice is one, and the last that is new counts
        leave_address(SF, agent.ORDER, "kairo", {"signal": f"surefoot-{looks}"})
        return {"parked": done.plain(), "pause": look_seconds(Parked.read(done.plain()), looks, SF.engine.time())}

    @k.workflow("agent")
    async def run(ctx, order):
        looks = 0
        while True:
            answer = await ctx.call("ride", looks)
            if "parked" not in answer:
                return answer["value"]
            try:
                await ctx.wait_for(f"surefoot-{looks}", timeout=answer["pause"] + 1)
            except TimedOutError:
                pass
            looks += 1


async def main() -> None:
    loop = asyncio.get_running_loop()
    blocked = loop.create_future()

    def observed(seen) -> None:
        if seen.kind == "run.settled" and seen.status == "blocked" and not blocked.done():
            blocked.set_result(f"{seen.run_id} stopped for review: {seen.error}")

    def wake(_, at) -> None:
        asyncio.run_coroutine_threadsafe(k.signal(agent.ORDER, at["signal"], None), loop).result(20)

    store = SQLiteStore(os.environ["ENGINE"])
    k = Kairo(backend=await EmbeddedBackend.open(store, owner="one"), observe=observed)
    (published if agent.PUBLISHED else ridden)(k)
    await k.start()
    with nullcontext() if agent.PUBLISHED else Waker(SF, "kairo", wake, every=0.2):
        run = asyncio.ensure_future(k.run("agent", agent.ORDER, id=agent.ORDER))
        await asyncio.wait([run, blocked], return_when=asyncio.FIRST_COMPLETED)
        if blocked.done():
            print(blocked.result(), flush=True)
            os._exit(76)
        agent.finish(run.result())
    sys.stdout.flush()
    os._exit(0)


asyncio.run(main())
