"""`surefoot.gather` and `surefoot.map`: work side by side, each in a branch whose path is fixed by its position.

In a `def` workflow the branches run in threads that carry the run's context; in an `async def` workflow they are tasks.
A branch that has to wait for a person does not stop the others: they finish first, then the run suspends.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..core.errors import Signal, UsageError
from ..core.journal import Branch
from .scope import Scope, current, require
from .session import Session

T = TypeVar("T")
A = TypeVar("A")


def gather(*branches: Any) -> Any:
    """Run all side by side and return their results in order; the first failure (in order) is raised when all ended.

    In a `def` workflow pass functions without arguments: `gather(lambda: a(1), lambda: b(2))`. In an `async def`
    workflow pass awaitables, and await the result.
    """
    session, branch = require("surefoot.gather()")
    if session.asynchronous:
        return _gather_async(session, branch, branches)
    for work in branches:
        if not callable(work) or hasattr(work, "__await__"):
            raise UsageError(f"in a def workflow surefoot.gather() takes functions without arguments; found {work!r}")
    return _in_threads(session, branch, branches, len(branches))


def map(function: Callable[[A], Any], items: Iterable[A], *, limit: int = 16) -> Any:
    """`[function(item) for item in items]`, at most `limit` side by side; in an `async def` workflow, await it."""
    if limit < 1:
        raise UsageError(f"surefoot.map() needs limit= of 1 or more, found {limit}")
    session, branch = require("surefoot.map()")
    if session.asynchronous:
        return _map_async(session, branch, function, list(items), limit)

    def bind(item: A) -> Callable[[], Any]:
        return lambda: function(item)

    return _in_threads(session, branch, [bind(item) for item in items], limit)


def _in_threads(session: Session, branch: Branch, branches: Sequence[Callable[[], Any]], limit: int) -> list[Any]:
    children = [Scope(session, session.state.replay.open_child(branch)) for _ in branches]
    results: list[Any] = [None] * len(branches)
    errors: dict[int, BaseException] = {}
    todo = iter(range(len(branches)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                index = next(todo, None)
            if index is None:
                return
            current.set(children[index])
            try:
                results[index] = branches[index]()
            except BaseException as error:
                errors[index] = error

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(work,), name=f"surefoot-branch-{n}", daemon=True)
        for n in range(min(limit, len(branches)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _raise_first(session, branch, errors)
    return results


def _raise_first(session: Session, branch: Branch, errors: dict[int, BaseException]) -> None:
    """A signal goes before a failure: a branch that waits for a person is not undone by another's exception."""
    for index in sorted(errors, key=lambda i: (not isinstance(errors[i], Signal), i)):
        raise session.stop(errors[index], branch)


async def _gather_async(session: Session, branch: Branch, branches: Sequence[Awaitable[Any]]) -> list[Any]:
    import asyncio

    results = await asyncio.gather(*branches, return_exceptions=True)
    _raise_first(session, branch, {i: result for i, result in enumerate(results) if isinstance(result, BaseException)})
    return results


async def _map_async(
    session: Session, branch: Branch, function: Callable[[Any], Awaitable[Any]], items: list[Any], limit: int
) -> list[Any]:
    import asyncio

    gate = asyncio.Semaphore(limit)

    async def one(item: Any) -> Any:
        async with gate:
            return await function(item)

    return await _gather_async(session, branch, [one(item) for item in items])
