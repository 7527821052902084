"""Inside DBOS: one DBOS step is one run, and its workflow waits in `DBOS.recv` while the run is parked.

The run's id is the workflow's id and the number of the step that first ran it, which DBOS gives again when it recovers
the workflow. DBOS and Surefoot may share one PostgreSQL database: Surefoot's tables are in a schema of their own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..core.errors import UsageError
from ..runtime.app import Surefoot
from .parked import Parked, leave_address, run_id_of
from .riding import AnyWorkflow, Done, attempt, attempt_async, is_final, look_seconds
from .waking import Waker

TRIES, TRY_SECONDS = 10, 1.0


def _dbos() -> Any:
    return import_module("dbos").DBOS


def run_id() -> str:
    """The id of this step's run; UsageError outside a step of a workflow."""
    dbos = _dbos()
    if not dbos.workflow_id or dbos.step_id is None:
        raise UsageError("this is not a step of a DBOS workflow; call ride(...) in the workflow's function")
    return run_id_of(dbos.workflow_id, str(dbos.step_id))


def topic_of(run_id: str) -> str:
    """The topic on which a workflow is told that its run may go on."""
    return f"surefoot:{run_id}"


def ride(sf: Surefoot, workflow: AnyWorkflow, *args: Any, **kwargs: Any) -> Any:
    """In a `def` DBOS workflow: run a `def` workflow of Surefoot as one step of it, resume it, or return its result.

    While the run is parked the DBOS workflow waits in `recv`, and looks by itself after a minute, two, four, up to an
    hour. A store that is out is tried again; any other failure is the step's, recorded by DBOS.
    """
    _refuse_outside()
    own, looks = "", 0
    while True:
        answer = _dbos().run_step(_options(sf, workflow), _step, sf, workflow, args, kwargs, own)
        own = answer["run"]
        if "parked" not in answer:
            return answer["value"]
        _dbos().recv(topic_of(own), timeout_seconds=_pause(answer, looks))
        looks += 1


async def ride_async(sf: Surefoot, workflow: AnyWorkflow, *args: Any, **kwargs: Any) -> Any:
    """The same in an `async def` DBOS workflow, for workflows of either kind."""
    _refuse_outside()
    own, looks = "", 0
    while True:
        answer = await _dbos().run_step_async(_options(sf, workflow), _step_async, sf, workflow, args, kwargs, own)
        own = answer["run"]
        if "parked" not in answer:
            return answer["value"]
        await _dbos().recv_async(topic_of(own), timeout_seconds=_pause(answer, looks))
        looks += 1


def _refuse_outside() -> None:
    if not _dbos().workflow_id or _dbos().step_id is not None:
        raise UsageError("ride(...) makes a step of a DBOS workflow: call it in a @DBOS.workflow(), outside its steps")


def _pause(answer: dict[str, Any], looks: int) -> float:
    # what the step recorded, so that a recovered workflow waits as its first execution did
    return look_seconds(Parked.read(answer["parked"]), looks, answer["at"])


def _options(sf: Surefoot, workflow: AnyWorkflow) -> dict[str, Any]:
    def may_help(error: BaseException) -> bool:
        return not is_final(sf, run_id(), error)

    return {
        "name": f"surefoot:{workflow.name}",
        "retries_allowed": True,
        "max_attempts": TRIES,
        "interval_seconds": TRY_SECONDS,
        "should_retry": may_help,
    }


def _step(sf: Surefoot, workflow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any], own: str) -> Any:
    own = own or run_id()
    return _answer(sf, own, attempt(sf, workflow, args, kwargs, own))


async def _step_async(
    sf: Surefoot, workflow: AnyWorkflow, args: tuple[Any, ...], kwargs: dict[str, Any], own: str
) -> Any:
    own = own or run_id()
    return _answer(sf, own, await attempt_async(sf, workflow, args, kwargs, own))


def _answer(sf: Surefoot, own: str, done: Done | Parked) -> dict[str, Any]:
    if isinstance(done, Done):
        return {"run": own, "value": done.value}
    leave_address(sf, own, "dbos", {"workflow": _dbos().workflow_id})
    return {"run": own, "parked": done.plain(), "at": sf.engine.time()}


@contextmanager
def waking(sf: Surefoot, *, every: float = 1.0) -> Generator[Waker]:
    """Send to the workflow of each parked run that may go on; `with` it after `DBOS.launch()`."""

    def poke(run_id: str, address: dict[str, Any]) -> None:
        _dbos().send(address["workflow"], "decided", topic_of(run_id))

    with Waker(sf, "dbos", poke, every=every) as waker:
        yield waker
