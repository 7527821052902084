"""An agent that is interrupted while one of its framework's tasks is inside a gated tool; a process of its own."""

import asyncio
import signal
import sys

from surefoot import Surefoot, keyed, opaque, workflow
from surefoot.http import scope
from surefoot.integrations.gated import gate_async

CONTRACTS = {"opaque": opaque(), "keyed": keyed(3600)}


async def act(began: asyncio.Future[None]) -> None:
    began.set_result(None)
    await asyncio.get_running_loop().create_future()  # the program that acts does not answer


@workflow(name="agent")
async def agent(contract: str, how: str) -> None:
    with scope("agent"):  # the task below is the framework's own: nobody waits for it
        began = asyncio.get_running_loop().create_future()
        flying = asyncio.create_task(
            gate_async("shell", CONTRACTS[contract], {"command": "x"}, lambda: act(began), timeout=600)
        )
        await asyncio.wait({began, flying}, return_when=asyncio.FIRST_COMPLETED)
        if flying.done():
            flying.result()
        print("in flight", flush=True)
        if how == "raised":
            raise KeyboardInterrupt
        if how == "signal":
            signal.raise_signal(signal.SIGINT)
        if how == "left":
            return
        await flying


async def main(db: str, contract: str, how: str) -> None:
    async with Surefoot(db) as sf:
        await sf.run(agent, contract, how, id="r")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
