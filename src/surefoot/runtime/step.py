"""`@step`: a unit whose result the journal keeps. `@workflow`: the function that a run executes.

A crash inside a step's body means that the body runs again; what must not happen twice is an effect, not a step.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from ..core import flows
from ..core.budget import Budget
from ..core.commands import Result
from ..core.errors import UsageError
from ..core.failures import encode_failure, rebuild_failure
from ..core.ids import check_id, check_name
from ..core.journal import Branch
from ..core.parameters import is_async, is_generator, parameters_of
from ..core.policy import delay_seconds
from ..core.values import ArgumentsCodec, Codec, resolve_hints
from .scope import current
from .session import Session
from .spans import optional_span

P = ParamSpec("P")
R = TypeVar("R")

_live_runs = 0
_live_lock = threading.Lock()


def count_live_runs(change: int) -> None:
    """Keep count of the runs that this process runs now."""
    global _live_runs
    with _live_lock:
        _live_runs += change


def default_name(function: Callable[..., Any]) -> str:
    """The qualified name without `<locals>`, so that moving a module does not break journals."""
    return function.__qualname__.replace("<locals>.", "")


def first_name(function: Callable[..., Any]) -> str:
    """The name of the first parameter, or ""."""
    return next((parameter.name for parameter in parameters_of(function)), "")


def check_function(function: Any, what: str) -> None:
    """Refuse what can be neither recorded nor replayed: generators, classes, things that cannot be called."""
    if is_generator(function):
        raise UsageError(f"{what} {function.__qualname__!r} is a generator function; return a list instead of yielding")
    if isinstance(function, Step | Workflow):
        raise UsageError(f"{function.name!r} is decorated already; use one decorator")
    if not callable(function) or isinstance(function, type) or not hasattr(function, "__qualname__"):
        raise UsageError(f"{what} needs a function (def or async def), found {function!r}")


def refuse_lost_context(name: str, what: str) -> None:
    """A step in a thread that does not know its run would silently not be recorded: say so instead.

    Outside any run a step is a plain call: in the main thread, in an event loop, or when no run is live here.
    """
    if not has_lost_context():
        return
    raise UsageError(
        f"{what} {name!r} was called in thread {threading.current_thread().name!r}, which does not know of any run, "
        "while runs are live in this process; it would not be recorded. Start the work with surefoot.gather, "
        "surefoot.map or asyncio.to_thread, or with contextvars.copy_context().run; for a plain call outside any run "
        f"use {name}.function(...)."
    )


def has_lost_context() -> bool:
    """True in a thread that was started without its maker's context, while runs are live in this process."""
    if _live_runs == 0 or threading.current_thread() is threading.main_thread():
        return False
    return not runs_loop()


def runs_loop() -> bool:
    """True if an event loop runs on this thread."""
    import sys

    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


def check_raises(raises: Any, name: str) -> tuple[type[BaseException], ...]:
    """The exception classes that come back as themselves."""
    classes = cast("tuple[Any, ...]", raises if isinstance(raises, tuple) else (raises,))
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise UsageError(f"{name!r}: raises= takes exception classes, found {kind!r}")
    return classes


class Named:
    """What steps, effects and workflows share: a function under a name."""

    def __init__(self, function: Callable[..., Any], what: str, name: str | None) -> None:
        """`is_async` tells whether calling it gives a coroutine."""
        check_function(function, what)
        self.function = function
        self.name = check_name(name or default_name(function), f"{what} name")
        self.is_async = is_async(function)
        self.is_method = first_name(function) in ("self", "cls")
        functools.update_wrapper(cast("Callable[..., Any]", self), function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind to an instance, as a function does; the instance is not part of the record."""
        return self if instance is None else MethodType(cast("Callable[..., Any]", self), instance)

    def refuse_unawaited(self, session: Session) -> None:
        """An `async def` body in a `def` workflow would be a coroutine that nobody awaits."""
        if not session.asynchronous and not runs_loop():
            raise UsageError(
                f"{self.name!r} is async def, and the def workflow that calls it cannot await it; make the workflow "
                "async def, or this function def"
            )

    def where(self) -> str:
        """File and line of the function."""
        code = getattr(self.function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


class Step(Named, Generic[P, R]):
    """A decorated step; see `step`."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        formerly: str | tuple[str, ...] = (),
        retries: int = 0,
        timeout: timedelta | float | None = None,
        raises: type[BaseException] | tuple[type[BaseException], ...] = (),
        ignore: tuple[str, ...] = (),
    ) -> None:
        """See `step`."""
        super().__init__(function, "step", name)
        former = (formerly,) if isinstance(formerly, str) else tuple(formerly)
        self.names = (self.name, *(check_name(n, "former name") for n in former))
        if retries < 0:
            raise UsageError(f"step {self.name!r}: retries must be 0 or more, found {retries}")
        self.retries = retries
        self.timeout_seconds = optional_span(timeout, f"step {self.name!r}: timeout")
        self.raises = check_raises(raises, self.name)
        self.skip = 1 if self.is_method else 0
        self.arguments = ArgumentsCodec(function, f"step {self.name!r}", skip=self.skip, ignore=ignore)

    @functools.cached_property
    def codec(self) -> Codec:
        """How results are stored and read back; built at first use, when annotations can be resolved."""
        return Codec(resolve_hints(self.function).get("return", Any), f"the result of step {self.name!r}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a workflow: recorded once. Outside, or inside another step: a plain call."""
        scope = current.get()
        if scope is None:
            refuse_lost_context(self.name, "step")
            return self.function(*args, **kwargs)
        if scope.branch is None:
            return self.function(*args, **kwargs)
        if self.is_async:
            self.refuse_unawaited(scope.session)
            return self._call_async(args, kwargs)  # pyright: ignore[reportReturnType]
        return self._call(scope.session, scope.branch, args, kwargs)

    def _use(self, branch: Branch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepUse:
        bound = self.arguments.bind(args[self.skip :], kwargs)
        _ = self.codec  # a result that could not be read back is refused before the body runs
        return StepUse(self, branch, self.arguments.encode(bound), args, kwargs)

    def _call(self, session: Session, branch: Branch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        session.enter(branch, self.name)
        try:
            use = self._use(branch, args, kwargs)
            outcome = session.drive(flows.step(session.state, use))
        except BaseException as error:
            raise session.stop(error, branch) from error.__cause__
        finally:
            branch.busy = ""
        return self._value(*outcome)

    async def _call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = current.get()
        assert scope is not None
        if scope.branch is None:
            return await self.function(*args, **kwargs)  # pyright: ignore[reportGeneralTypeIssues]
        session, branch = scope.session, scope.branch
        session.check_decided(branch, self.names)
        session.enter(branch, self.name)
        session.active += 1
        try:
            use = self._use(branch, args, kwargs)
            outcome = await session.drive_async(flows.step(session.state, use))
        except BaseException as error:
            session.refuse_timer(error, branch)
            raise session.stop(error, branch) from error.__cause__
        finally:
            session.active -= 1
            branch.busy = ""
        return self._value(*outcome)

    def _value(self, ok: bool, stored: bytes, live: Result | None) -> Any:
        if ok:
            return self.codec.decode(stored) if live is None else live.value
        error = rebuild_failure(stored, self.name, self.raises)
        raise error from (live.value if live is not None else None)

    def settle(self, value: Any) -> Result:
        """The result as the journal keeps it; a value that cannot be stored exactly is this step's failure."""
        try:
            stored, after = self.codec.settle(value)
        except UsageError as refused:
            return Result(False, encode_failure(refused), refused, retryable=False)
        return Result(True, stored, after)


class StepUse:
    """One use of a step; what `flows.step` sees as its call."""

    __slots__ = ("args", "arguments", "branch", "kwargs", "names", "retries", "step")

    def __init__(
        self, step: Step[..., Any], branch: Branch, arguments: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """`arguments` is the canonical form of `args` and `kwargs`."""
        self.step, self.branch, self.names, self.retries = step, branch, step.names, step.retries
        self.arguments, self.args, self.kwargs = arguments, args, kwargs

    def delay_seconds(self, attempt: int) -> float:
        """Exponential back-off."""
        return delay_seconds(attempt)

    def run(self, session: Session, attempt: int) -> Result:
        """Run the body on this thread, or on one of its own when it has a timeout."""
        step = self.step
        token = current.set(session.step_scope)
        try:
            if step.timeout_seconds is None:
                value = step.function(*self.args, **self.kwargs)
            else:
                value = call_within(lambda: step.function(*self.args, **self.kwargs), step.timeout_seconds, step.name)
        except Exception as error:
            return Result(False, encode_failure(error), error)
        finally:
            current.reset(token)
        return step.settle(value)

    async def run_async(self, session: Session, attempt: int) -> Result:
        """Run the body in this task."""
        step = self.step
        token = current.set(session.step_scope)
        try:
            if step.timeout_seconds is None:
                value = await step.function(*self.args, **self.kwargs)
            else:
                import asyncio

                async with asyncio.timeout(step.timeout_seconds):
                    value = await step.function(*self.args, **self.kwargs)
        except Exception as error:
            return Result(False, encode_failure(error), error)
        finally:
            current.reset(token)
        return step.settle(value)


def call_within(body: Callable[[], Any], seconds: float, name: str) -> Any:
    """Call `body` on a thread of its own and wait at most `seconds`; a late body is left behind, its result dropped."""
    import contextvars

    outcome: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            outcome.append((True, body()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name=f"step {name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"step {name!r} took longer than {seconds:g} s")
    ok, value = outcome[0]
    if not ok:
        raise value
    return value


@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    formerly: str | tuple[str, ...] = (),
    retries: int = 0,
    timeout: timedelta | float | None = None,
    raises: type[BaseException] | tuple[type[BaseException], ...] = (),
    ignore: tuple[str, ...] = (),
) -> Callable[[Callable[P, R]], Step[P, R]]: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a step: inside a run its result is recorded, and it never runs again once that is durable.

    `retries` more tries with exponential back-off; `timeout` (seconds) ends a try with TimeoutError; `raises` names
    exception classes of yours that come back as themselves; `formerly` lists old names whose records it may read;
    `ignore` names parameters that stay out of the record. When the call returns, the result is on disk (with
    `durability="pipelined"`: queued in order). A crash inside leaves no record, and the body runs again.
    """
    if function is None:
        return functools.partial(cast("Any", Step), **options)
    return Step(function, **options)


# --- workflows --------------------------------------------------------------------------------------------------------


class Workflow(Named, Generic[P, R]):
    """A decorated workflow; see `workflow`."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        version: str = "",
        replays: str | tuple[str, ...] = (),
        compensate: bool = False,
        budget: Budget | None = None,
        raises: type[BaseException] | tuple[type[BaseException], ...] = (),
        ignore: tuple[str, ...] = (),
    ) -> None:
        """See `workflow`."""
        super().__init__(function, "workflow", name)
        older = (replays,) if isinstance(replays, str) else tuple(replays)
        self.version = check_version(version, self.name)
        self.versions = tuple(dict.fromkeys((version, *(check_version(v, self.name) for v in older))))
        self.compensate = compensate
        self.budget = check_budget(budget)
        self.raises = check_raises(raises, self.name)
        self.skip = 1 if self.is_method else 0
        self.arguments = ArgumentsCodec(function, f"workflow {self.name!r}", skip=self.skip, ignore=ignore)
        self.ignored = frozenset(ignore)
        register(self)

    @functools.cached_property
    def codec(self) -> Codec:
        """How the result is stored and read back."""
        return Codec(resolve_hints(self.function).get("return", Any), f"the result of workflow {self.name!r}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Always refused: a plain call would silently not be durable."""
        if current.get() is not None:
            raise UsageError(
                f"workflow {self.name!r} was called inside a run. As a run of its own: surefoot.call("
                f"{self.function.__name__}, ...), or surefoot.start_child; to inline its steps here: "
                f"{self.function.__name__}.function(...)."
            )
        raise UsageError(
            f"workflow {self.name!r} was called directly, which would record nothing; use "
            f"`Surefoot(...).run({self.function.__name__}, ..., id=...)`, or {self.function.__name__}.function(...) "
            "for a plain call"
        )


def check_budget(budget: Any) -> Budget | None:
    """A budget, or none."""
    if budget is not None and not isinstance(budget, Budget):
        raise UsageError(f"budget= takes a surefoot.Budget, such as Budget(attempts=100), found {budget!r}")
    return budget


def budget_until(budget: Budget | None, time: Callable[[], float]) -> float:
    """When the wall time of a run that is created now ends, by the store's clock; 0 for never."""
    seconds = budget.wall_seconds() if budget is not None else 0.0
    return time() + seconds if seconds else 0.0


def check_version(version: object, name: str) -> str:
    """A workflow's version: any printable text; "" is that of code that never said one."""
    return "" if version == "" else check_id(version, f"workflow {name!r}: a version")


_workflows: dict[tuple[str, str], list[Workflow[..., Any]]] = {}


def register(workflow: Workflow[..., Any]) -> None:
    """Remember its code by name and version; the same function decorated again replaces the first."""
    for held in _workflows.values():
        held[:] = [other for other in held if not _is_same(other, workflow)]
    for version in workflow.versions:
        _workflows.setdefault((workflow.name, version), []).append(workflow)


def the_only(name: str, version: str, found: Sequence[Workflow[..., Any]]) -> Workflow[..., Any] | None:
    """The one that a run of this name means; None if there is none, UsageError if it could be one of two."""
    if len(found) > 1:
        which = f" (version {version!r})" if version else ""
        raise UsageError(
            f"two workflows are named {name!r}{which}: {found[0].where()} and {found[1].where()}; a run that is taken "
            'from the store finds its code by name. Give one another name with @workflow(name="..."), or a version'
        )
    return found[0] if found else None


def _is_same(one: Workflow[..., Any], other: Workflow[..., Any]) -> bool:
    return (one.function.__module__, one.function.__qualname__) == (
        other.function.__module__,
        other.function.__qualname__,
    )


def all_workflows() -> list[Workflow[..., Any]]:
    """Every workflow that has been decorated in this process."""
    return list(dict.fromkeys(workflow for held in _workflows.values() for workflow in held))


def find_workflow(name: str, version: str) -> Workflow[..., Any] | None:
    """The code of a run, if it was decorated in this process; UsageError if two functions have its name."""
    return the_only(name, version, _workflows.get((name, version), []))


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "",
    replays: str | tuple[str, ...] = (),
    compensate: bool = False,
    budget: Budget | None = None,
    raises: type[BaseException] | tuple[type[BaseException], ...] = (),
    ignore: tuple[str, ...] = (),
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
def workflow(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a workflow, to be run by `Surefoot.run` or by a worker.

    It is replayed from the top after a crash, so it must ask for the same steps in the same order: time, random
    numbers and I/O belong in steps, or come from `surefoot.now`, `random`, `uuid`. `compensate=True` undoes confirmed
    effects in reverse order when the run fails.
    `budget` limits each run of it. `raises` names exceptions that come back as themselves.

    A run keeps the `version` under which it was started; a worker takes it only if its code has that version, or
    says with `replays=` that it can replay that older one.
    """
    if function is None:
        return functools.partial(cast("Any", Workflow), **options)
    return Workflow(function, **options)
