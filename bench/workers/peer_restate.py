"""Restate (https://github.com/restatedev/restate): one server, its own store, defaults.

A step is `ctx.run_typed`. The server calls this process over HTTP/2, where the Python SDK answers on hypercorn; this
process asks the server for runs.
"""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import hypercorn.asyncio
import hypercorn.config
import restate
from protocol import Engine, body, main

TRIES, PAUSE_SECONDS = 300, 0.1
service = restate.Service("bench")


async def no_op(number: int) -> dict[str, str]:
    return body(number)


@service.handler()
async def steps(context: restate.Context, count: int) -> None:
    for number in range(count):
        await context.run_typed("step", no_op, number=number)


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Restate(Engine):
    def open(self) -> None:
        self.ingress, self.admin, node, self.here = free_ports(4)
        folder = Path(sys.prefix) / "node_modules" / "@restatedev"
        program = next(
            folder.glob("restate-server-*/bin/restate-server")
        )  # not node's wrapper, which would be left behind
        settings = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self.ingress}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self.admin}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_LOG_FILTER": "error",
            "DO_NOT_TRACK": "1",
        }
        self.server = subprocess.Popen(
            [program, "--no-logo", "--base-dir", f"{self.folder}/restate", "--node-name", "bench"],
            env={**os.environ, **settings}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self.register())
        except BaseException:
            self.close()
            raise

    async def register(self) -> None:
        config = hypercorn.config.Config()
        config.bind, config.loglevel = [f"127.0.0.1:{self.here}"], "ERROR"
        serving = hypercorn.asyncio.serve(restate.app([service]), config, shutdown_trigger=asyncio.Event().wait)
        self.serving = self.loop.create_task(serving)
        self.http = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=2_000))
        await self.post(f"http://127.0.0.1:{self.admin}/deployments", {"uri": f"http://127.0.0.1:{self.here}"})

    async def post(self, url: str, content: object) -> None:
        """Until it is accepted: a server that has just started refuses for a while."""
        for _ in range(TRIES):
            try:
                answer = await self.http.post(url, json=content)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.is_success:
                return
            if answer is not None and answer.status_code not in (404, 503):
                raise RuntimeError(answer.text)
            await asyncio.sleep(PAUSE_SECONDS)
        raise RuntimeError("the server did not accept it in time")

    def close(self) -> None:
        self.server.kill()
        self.server.wait()

    async def one(self, count: int) -> None:
        await self.post(f"http://127.0.0.1:{self.ingress}/bench/steps", count)

    def sequence(self, name: str, count: int) -> None:
        self.loop.run_until_complete(self.one(count))

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        self.lanes(runs, runs, count)

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        self.lanes(runs, lanes, 0)

    def lanes(self, runs: int, lanes: int, count: int) -> None:
        async def lane(first: int) -> None:
            for _ in range(first, runs, lanes):
                await self.one(count)

        async def all_lanes() -> None:
            await asyncio.gather(*(lane(first) for first in range(lanes)))

        self.loop.run_until_complete(all_lanes())


if __name__ == "__main__":
    main(Restate)
