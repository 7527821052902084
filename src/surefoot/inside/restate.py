"""Inside a Restate handler: one `ctx.run` is one run, and the handler waits for an awakeable while the run is parked.

The run's id is the invocation's id, with the object's or workflow's key before it where there is one, and the number of
the ride in this handler: Restate runs the handler again from the top, so that number is the same each time.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from ..core.errors import UsageError
from ..runtime.app import Surefoot
from .parked import Parked, leave_address, run_id_of
from .riding import AnyWorkflow, Done, attempt_async, is_final, look_seconds
from .waking import Waker

POKE_SECONDS = 10.0
_rides: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def run_id(ctx: Any, number: int = 1) -> str:
    """The id of the handler's run of that number."""
    key = (ctx.key(),) if hasattr(ctx, "key") else ()
    return run_id_of(*key, ctx.request().id, str(number))


async def ride(ctx: Any, sf: Surefoot, workflow: AnyWorkflow, *args: Any, id: str | None = None, **kwargs: Any) -> Any:
    """In a handler: run the workflow as one `ctx.run`, resume it, or return its result.

    While the run is parked the handler waits for an awakeable, and looks by itself after a minute, two, four, up to an
    hour. A failure that another try would repeat becomes a TerminalError; others are Restate's to retry.
    """
    restate: Any = import_module("restate")
    _rides[ctx] = number = _rides.get(ctx, 0) + 1
    own, looks = id or run_id(ctx, number), 0
    while True:
        answer = await ctx.run_typed(
            f"surefoot:{workflow.name}", _step, restate.RunOptions(), sf, workflow, args, kwargs, own
        )
        if "parked" not in answer:
            return answer["value"]
        name, decided = ctx.awakeable()
        await ctx.run_typed("surefoot:parked", _leave, restate.RunOptions(), sf, own, name)
        pause = timedelta(seconds=look_seconds(Parked.read(answer["parked"]), looks, answer["at"]))
        await restate.select(decided=decided, looked=ctx.sleep(pause))
        looks += 1


async def _step(
    sf: Surefoot, workflow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any], own: str
) -> dict[str, Any]:
    try:
        done = await attempt_async(sf, workflow, args, kwargs, own)
    except Exception as error:
        if is_final(sf, own, error):
            raise import_module("restate").TerminalError(f"run {own!r}: {type(error).__name__}: {error}") from error
        raise
    if isinstance(done, Done):
        return {"value": done.value}
    return {"parked": done.plain(), "at": sf.engine.time()}


def _leave(sf: Surefoot, own: str, awakeable: str) -> str:
    leave_address(sf, own, "restate", {"awakeable": awakeable})
    return awakeable


@contextmanager
def waking(sf: Surefoot, ingress: str, *, every: float = 1.0) -> Generator[Waker]:
    """Resolve the awakeable of each parked run that may go on, at Restate's ingress, such as http://127.0.0.1:8080."""
    if not ingress.startswith(("http://", "https://")):
        raise UsageError(f"ingress is the URL of Restate's ingress, such as http://127.0.0.1:8080; found {ingress!r}")

    def poke(run_id: str, address: dict[str, Any]) -> None:
        place = f"{ingress.rstrip('/')}/restate/awakeables/{quote(address['awakeable'], safe='')}/resolve"
        request = urllib.request.Request(
            place, data=b'"decided"', headers={"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=POKE_SECONDS):
            pass

    with Waker(sf, "restate", poke, every=every) as waker:
        yield waker
