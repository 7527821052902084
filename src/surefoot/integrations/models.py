"""What every adapter asks around a model call: may the run go on, and was the call recorded?

Frameworks can reach a model by ways that nobody records (gRPC, botocore, websockets, a fake in a test). Within a run
that is an error: after a crash the model would be asked again, answer differently, and act differently.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from ..core.errors import UsageError
from ..runtime import calls
from ..runtime.calls import Place

T = TypeVar("T")


def _counted(place: Place) -> int:
    shared = calls.calls_of(place.session)
    return sum(len(used) for used in shared.taken.values()) + sum(shared.tries.values())


def _open(what: str) -> tuple[Place, int] | None:
    place = calls.place(what)
    if place is None or place.plain:
        return None
    calls.refuse_if_stopped(place)
    return place, _counted(place)


def _close(what: str, held: tuple[Place, int] | None) -> None:
    if held is None:
        return
    place, before = held
    calls.refuse_if_stopped(place)
    if _counted(place) == before:
        unrecorded = UsageError(
            f"{what} was answered, but nothing recorded it, so that a restart would ask again and act differently. "
            "Record at HTTP with surefoot.http.install(), or the client that surefoot.http makes; for a model that is "
            "not reached by HTTP, make the call in a step"
        )
        raise calls.stop(place, unrecorded)


@contextmanager
def watched(what: str) -> Generator[None]:
    """Around one model call: refuses it in a run that has stopped, and an answer that nobody recorded."""
    held = _open(what)
    yield
    _close(what, held)


def guarded(what: str, call: Callable[[], T]) -> T:
    """What `call` gives, `watched`."""
    with watched(what):
        return call()


async def guarded_async(what: str, call: Callable[[], Awaitable[T]]) -> T:
    """What `call` gives, `watched`."""
    with watched(what):
        return await call()
