"""Surefoot, as a user writes it: nothing here that the README does not show."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

from fleet import note
from protocol import Engine, body, main

from surefoot import Surefoot, effect, keyed, step, workflow

DAY = timedelta(hours=24)


@step
def no_op(number: int) -> dict[str, str]:
    return body(number)


@step
async def no_op_async(number: int) -> dict[str, str]:
    return body(number)


@effect(keyed(window=DAY), timeout=30)
def change(attempt: Any, number: int) -> dict[str, str]:
    return body(number)


@effect(keyed(window=DAY), timeout=30)
async def change_async(attempt: Any, number: int) -> dict[str, str]:
    return body(number)


@workflow
def steps(count: int) -> None:
    for number in range(count):
        no_op(number)


@workflow
async def steps_async(count: int) -> None:
    for number in range(count):
        await no_op_async(number)


@workflow
def changes(count: int) -> None:
    for number in range(count):
        change(number)


@workflow
async def changes_async(count: int) -> None:
    for number in range(count):
        await change_async(number)


@step
async def noted(name: str, number: int, seconds: float) -> dict[str, str]:
    value = note(name, number)
    if seconds:
        await asyncio.sleep(seconds)
    return value


@workflow
async def queued(name: str, count: int, seconds: float) -> None:
    for number in range(count):
        await noted(name, number, seconds)


class Ours(Engine):
    kinds = ("def", "async")

    def open(self) -> None:
        self.surefoot = Surefoot(self.url or f"{self.folder}/surefoot.db", durability=self.durability).__enter__()
        self.loop = asyncio.Runner()

    def close(self) -> None:
        self.surefoot.__exit__(None, None, None)
        self.loop.close()

    def one(self, sync: Any, asynchronous: Any, name: str, count: int) -> None:
        if self.kind == "async":
            self.loop.run(self.surefoot.run(asynchronous, count, id=name))
        else:
            self.surefoot.run(sync, count, id=name)

    def sequence(self, name: str, count: int) -> None:
        self.one(steps, steps_async, name, count)

    def effects(self, name: str, count: int) -> None:
        self.one(changes, changes_async, name, count)

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        self.lanes(prefix, runs, runs, count)

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        self.lanes(prefix, runs, lanes, 0)

    def enqueue(self, name: str, count: int, seconds: float) -> None:
        self.surefoot.start(queued, name, count, seconds, id=name, queue="default")

    def serve(self) -> None:
        self.surefoot.work([queued])

    def lanes(self, prefix: str, runs: int, lanes: int, count: int) -> None:
        """Each lane does its share of the runs, one after the other: tasks for `async def`, threads for `def`."""

        async def lane_async(first: int) -> None:
            for number in range(first, runs, lanes):
                await self.surefoot.run(steps_async, count, id=f"{prefix}-{number}")

        async def all_lanes() -> None:
            await asyncio.gather(*(lane_async(first) for first in range(lanes)))

        def lane(first: int) -> None:
            for number in range(first, runs, lanes):
                self.surefoot.run(steps, count, id=f"{prefix}-{number}")

        if self.kind == "async":
            self.loop.run(all_lanes())
        elif lanes == 1:
            lane(0)
        else:
            threads = [threading.Thread(target=lane, args=(first,)) for first in range(lanes)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main(Ours)
