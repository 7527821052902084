"""`@effect`: a step that changes the outside world, with an identity and the receiver's promise about duplicates.

The flow is in `core/flows.py`; this module is what a user writes, and how one attempt is made.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from ..core import perform
from ..core.approval import EffectRequest
from ..core.contract import Contract, Kind, Promises
from ..core.effect import Effect as EffectRecord
from ..core.effect import Status
from ..core.errors import Abandoned, Refused, RunWaiting, Suspend, UsageError, ValueRefused
from ..core.ids import check_id, check_identity, check_name, fill_identity
from ..core.journal import Branch
from ..core.outcome import Confirmed, InDoubt
from ..core.parameters import is_async, parameters_of
from ..core.perform import Settled
from ..core.values import ArgumentsCodec, Codec, resolve_hints
from ..runtime.outside import finders, outside_session
from ..runtime.scope import current
from ..runtime.session import Session
from ..runtime.spans import optional_span
from ..runtime.step import Named, check_function, first_name, refuse_lost_context
from .same_transaction import SameTransaction
from .scope import Scope, pin_scope

if TYPE_CHECKING:
    from .use import EffectUse

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_BUDGET_SECONDS = 900.0
_effects: dict[str, Effect[..., Any] | None] = {}


@functools.cache
def _using() -> ModuleType:
    """What sends and reads answers, imported when an effect is first used."""
    from . import use

    return use


def use_of(*use: Any, **options: Any) -> EffectUse:
    """An `EffectUse`."""
    return _using().EffectUse(*use, **options)


class Effect(Named, Generic[P, R]):
    """A decorated effect; see `effect`."""

    def __init__(
        self,
        function: Callable[..., R],
        contract: Contract | Promises,
        *,
        identity: str | Callable[..., str] | None = None,
        scope: Scope | Callable[[], Scope] | None = None,
        timeout: timedelta | float = DEFAULT_TIMEOUT_SECONDS,
        budget: timedelta | float = DEFAULT_BUDGET_SECONDS,
        name: str | None = None,
        formerly: str | tuple[str, ...] = (),
        needs_approval: bool | str = False,
    ) -> None:
        """See `effect`."""
        super().__init__(function, "effect", name)
        self.connect = contract.connect if isinstance(contract, SameTransaction) else None
        self.contract = contract if isinstance(contract, Contract) else contract.contract
        former = (formerly,) if isinstance(formerly, str) else tuple(formerly)
        self.names = (self.name, *(check_name(n, "former name") for n in former))
        self.identity, self.scope = identity, scope
        self.timeout_seconds = optional_span(timeout, f"effect {self.name!r}: timeout") or DEFAULT_TIMEOUT_SECONDS
        self.budget_seconds = optional_span(budget, f"effect {self.name!r}: budget") or DEFAULT_BUDGET_SECONDS
        names = [parameter.name for parameter in parameters_of(function)]
        self.skip = 2 if self.is_method else 1
        if len(names) < self.skip or names[self.skip - 1] != "attempt":
            raise UsageError(
                f"effect {self.name!r}: its first parameter{' after self' if self.is_method else ''} must be named "
                "'attempt'; it carries the key, the headers and the deadline of this try"
            )
        if self.is_async and self.connect is not None:
            raise UsageError(f"effect {self.name!r}: same_transaction needs a def function, since DB-API blocks")
        self.arguments = ArgumentsCodec(function, f"effect {self.name!r}", skip=self.skip)
        self.needs_approval = check_needs_approval(needs_approval, names[self.skip :], self.name)
        if isinstance(identity, str):
            check_identity(identity, names[self.skip :])
        if scope is not None and not callable(scope):
            pin_scope(scope, self.name)
        self._lookup: Callable[..., Any] | None = None
        self._undo: Effect[..., Any] | None = None
        self.register()

    def register(self) -> None:
        """Let an intent find its code by name; a name of two functions, or of one made twice, finds none."""
        _effects[self.name] = None if self.name in _effects else self

    # --- decorating -------------------------------------------------------------------------------------------------

    def lookup(self, function: Callable[..., R | None]) -> Callable[..., R | None]:
        """Register the function that asks the receiver, called only in doubt: the receipt, or None when absent.

        It gets the attempt and the effect's own arguments. Raise `Several` when more than one could be ours.
        """
        check_function(function, "lookup")
        if self.contract.kind in (Kind.OPAQUE, Kind.SAME_TRANSACTION):
            raise UsageError(
                f"effect {self.name!r} is {self.contract.kind}; a receiver that can be asked has the contract "
                "lookup(lag=...), where lag is the longest time until it shows what it has accepted"
            )
        if is_async(function) != self.is_async:
            raise UsageError(f"the lookup of {self.name!r} must be {'async def' if self.is_async else 'def'}, as it is")
        self._lookup = function
        return function

    def compensate(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        contract: Contract | Promises | None = None,
        **options: Any,
    ) -> Any:
        """Register the function that undoes a confirmed effect, given the attempt and the receipt.

        It is an effect of its own: identity = this effect's, contract = this effect's unless given; what is returned
        takes a lookup of its own.
        """
        if function is None:
            return functools.partial(self.compensate, contract=contract, **options)
        if first_name(function) in ("self", "cls"):
            raise UsageError(
                f"the compensation of {self.name!r} takes {first_name(function)!r}, but the instance is not recorded, "
                "so nobody could give it one after a crash; write it without, as (attempt, receipt)"
            )
        if options.get("needs_approval"):
            raise UsageError(
                f"the compensation of {self.name!r} cannot need approval: it also runs where a workflow has failed and "
                "asks for nothing any more; make it an effect that the workflow calls, after surefoot.approve"
            )
        target = contract or (SameTransaction(self.contract, self.connect) if self.connect else self.contract)
        undo = Effect(function, target, name=f"compensate:{self.name}", **options)
        try:
            undo.arguments.bind((None,), {})
        except TypeError as error:
            raise UsageError(
                f"the compensation of {self.name!r} is called as (attempt, receipt), and with nothing else ({error}); "
                "put what it needs into the effect's receipt"
            ) from None
        self._undo = undo
        return self._undo

    @functools.cached_property
    def codec(self) -> Codec:
        """How receipts are stored and read back."""
        return Codec(resolve_hints(self.function).get("return", Any), f"the receipt of effect {self.name!r}")

    # --- calling ----------------------------------------------------------------------------------------------------

    def request(self, *args: Any, **kwargs: Any) -> EffectRequest:
        """This effect's request with these arguments, for `surefoot.approve`; nothing is recorded or sent.

        Raises ValueRefused for arguments that cannot be stored. A method's instance is no part of it.
        """
        return EffectRequest(self.names, self.arguments.encode(self.arguments.bind(args, kwargs)), self.needs_approval)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """The receipt. Raises Refused, Abandoned or Disagreement; suspends the run while in doubt and parked."""
        if self.is_async:
            self._refuse_unawaited()
            return self._call_async(args, kwargs, self._receipt)  # pyright: ignore[reportReturnType]
        return self._call(args, kwargs, self._receipt)

    def outcome(self, *args: Any, **kwargs: Any) -> Confirmed[R] | Refused | InDoubt:
        """The outcome as a value: Confirmed, Refused or InDoubt; a workflow that gets InDoubt goes on with care."""
        if self.is_async:
            self._refuse_unawaited()
            return self._call_async(args, kwargs, self._outcome)  # pyright: ignore[reportReturnType]
        return self._call(args, kwargs, self._outcome)

    def call_at_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[R]:
        """An `async def` effect's receipt, where doubt suspends the run at once, whatever else of it moves."""

        def receipt(*ended: Any) -> Any:
            return self._receipt(*ended)

        return self._call_async(args, kwargs, receipt)

    def _refuse_unawaited(self) -> None:
        scope = current.get()
        if scope is not None and scope.branch is not None:
            self.refuse_unawaited(scope.session)

    def _place(self) -> tuple[Session, Branch]:
        scope = current.get()
        if scope is None or scope.branch is None:
            if self.identity is None:
                where = "inside a step" if scope is not None else "outside a run"
                raise UsageError(
                    f"effect {self.name!r} was called {where}, where its place in a workflow cannot be its identity; "
                    'give it one: @effect(..., identity="order:{order_id}")'
                )
            if scope is None:
                refuse_lost_context(self.name, "effect")
            session = outside_session(self.name, scope.session.engine if scope is not None else None)
            return session, Branch("")
        return scope.session, scope.branch

    def _identity_of(self, bound: dict[str, Any]) -> str:
        if self.identity is None:
            return ""
        if isinstance(self.identity, str):
            return fill_identity(self.identity, bound)
        return check_id(self.identity(**bound), f"the identity of effect {self.name!r}")

    def _use(self, session: Session, branch: Branch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EffectUse:
        if self.contract.kind is Kind.LOOKUP and self._lookup is None:
            raise UsageError(
                f"effect {self.name!r} has the contract lookup, but nothing to ask with; add @{self.name}.lookup"
            )
        if self.needs_approval and not session.state.run_id:
            raise UsageError(
                f"effect {self.name!r} needs approval, and an approval belongs to a run: call it in a workflow, after "
                "surefoot.approve"
            )
        owner = args[0] if self.is_method else None
        _ = self.codec  # a receipt that could not be read back is refused before anything is sent
        bound = self.arguments.bind(args[self.skip - 1 :], kwargs)
        return use_of(self, branch, self.arguments.encode(bound), self._identity_of(bound), owner)

    def pinned_scope(self) -> tuple[tuple[str, str], ...]:
        """Where a request of this effect goes now; compared with the intent before each resend."""
        scope = self.scope() if callable(self.scope) else self.scope
        return pin_scope(scope, self.name) if scope else ()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], finish: Callable[..., Any]) -> Any:
        session, branch = self._place()
        session.enter(branch, self.name)
        try:
            use = self._use(session, branch, args, kwargs)
            record, settled = session.drive(perform.perform(session.state, use))
            told = ""
            if finish == self._outcome and session.state.run_id:
                told = session.drive(perform.doubt_told(session.state, branch, self.name, self._reason(settled)))
        except BaseException as error:
            raise session.stop(error, branch) from error.__cause__
        finally:
            branch.busy = ""
        self.register_undo(session, branch, settled)
        settled = self._as_told(settled, told)
        return finish(session, branch, record, settled)

    def _reason(self, settled: Settled) -> str:
        return settled.reason or "parked" if settled.status is Status.PARKED else ""

    def _as_told(self, settled: Settled, told: str) -> Settled:
        return Settled(status=Status.PARKED, key=settled.key, reason=told) if told else settled

    async def _call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any], finish: Callable[..., Any]) -> Any:
        session, branch = self._place()
        session.check_decided(branch, self.names)
        session.enter(branch, self.name)
        session.active += 1
        try:
            use = self._use(session, branch, args, kwargs)
            record, settled = await session.drive_async(perform.perform(session.state, use))
            told = ""
            if finish == self._outcome and session.state.run_id:
                flow = perform.doubt_told(session.state, branch, self.name, self._reason(settled))
                told = await session.drive_async(flow)
        except BaseException as error:
            session.refuse_timer(error, branch)
            raise session.stop(error, branch) from error.__cause__
        finally:
            session.active -= 1
            branch.busy = ""
        self.register_undo(session, branch, settled)
        settled = self._as_told(settled, told)
        if settled.status is Status.PARKED and finish == self._receipt and session.state.run_id:
            await session.wait_for_person(branch, self._doubt(session, record, settled))
        return finish(session, branch, record, settled)

    def register_undo(self, session: Session, branch: Branch, settled: Settled) -> None:
        """Remember how to undo it when the run fails."""
        if self._undo is not None and settled.status is Status.CONFIRMED and session.state.run_id:
            confirmed = self._confirmed(settled)
            session.compensations.append((branch.next_place(), lambda: self.undo(confirmed)))

    def undo(self, confirmed: Confirmed[Any]) -> Any:
        """Compensate a confirmed effect; see `surefoot.compensate`."""
        if self._undo is None:
            raise UsageError(f"effect {self.name!r} has no compensation; register one with @{self.name}.compensate")
        return self._undo.compensating(confirmed)

    def compensating(self, confirmed: Confirmed[Any]) -> Any:
        """Perform this compensation for that confirmed effect."""
        session, branch = self._place_of_undo()
        bound = self.arguments.bind((confirmed.receipt,), {})
        identity = f"compensate:{confirmed.effect}"
        use = use_of(self, branch, self.arguments.encode(bound), identity, None, compensates=confirmed.effect)
        if self.is_async and (session.asynchronous or not session.state.run_id):
            return self._undo_async(session, use)
        # also one that is async def, of an effect in a def workflow: nobody there would await it
        session.enter(branch, self.name)
        try:
            record, settled = session.drive(perform.perform(session.state, use))
        except BaseException as error:
            raise session.stop(error, branch) from error.__cause__
        finally:
            branch.busy = ""
        return self._receipt(session, branch, record, settled)

    async def _undo_async(self, session: Session, use: EffectUse) -> Any:
        session.enter(use.branch, self.name)
        try:
            record, settled = await session.drive_async(perform.perform(session.state, use))
        except BaseException as error:
            session.refuse_timer(error, use.branch)
            raise session.stop(error, use.branch) from error.__cause__
        finally:
            use.branch.busy = ""
        return self._receipt(session, use.branch, record, settled)

    def _place_of_undo(self) -> tuple[Session, Branch]:
        scope = current.get()
        if scope is not None and scope.branch is not None:
            return scope.session, scope.branch
        return outside_session(self.name), Branch("")

    # --- ends -------------------------------------------------------------------------------------------------------

    def _confirmed(self, settled: Settled) -> Confirmed[R]:
        unstorable: str = _using().UNSTORABLE
        if settled.reason.startswith(unstorable):
            raise ValueRefused(f"effect {self.name!r} happened, but its receipt", "", settled.reason[len(unstorable) :])
        content = bytes(settled.receipt)
        receipt = None if content == b"null" else self.codec.decode(content)
        return Confirmed(receipt=cast("R", receipt), effect=settled.key, name=self.name, code=self)

    def _doubt(self, session: Session, record: EffectRecord | None, settled: Settled) -> InDoubt:
        return InDoubt(effect=settled.key, name=self.name, run=session.state.run_id, reason=settled.reason)

    def _outcome(self, session: Session, branch: Branch, record: EffectRecord | None, settled: Settled) -> Any:
        match settled.status:
            case Status.CONFIRMED | Status.COMPENSATED:
                return self._confirmed(settled)
            case Status.REFUSED:
                return Refused(settled.reason, effect=settled.key)
            case _:
                return self._doubt(session, record, settled)

    def _receipt(self, session: Session, branch: Branch, record: EffectRecord | None, settled: Settled) -> Any:
        outcome = self._outcome(session, branch, record, settled)
        if isinstance(outcome, Confirmed):
            return outcome.receipt  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if isinstance(outcome, Refused):
            raise outcome
        if settled.status is Status.ABANDONED:
            raise Abandoned(f"effect {self.name!r} was abandoned: {settled.reason}")
        reason = f"effect {self.name!r} is in doubt: {outcome.reason}. Decide: {outcome.how()}"
        raise session.stop(Suspend(reason), branch) if session.state.run_id else RunWaiting("(outside any run)", reason)


def check_needs_approval(needs: Any, parameters: list[str], name: str) -> bool | str:
    """True, False, or one of the effect's parameters."""
    if isinstance(needs, bool) or (isinstance(needs, str) and needs in parameters):
        return needs
    known = ", ".join(parameters) or "it has none"
    raise UsageError(f"effect {name!r}: needs_approval= takes True or the name of a parameter ({known}), not {needs!r}")


def find_call(record: EffectRecord, request: bytes, branch: Branch) -> EffectUse | None:
    """The code of a recorded effect, by its name; None where the name is not enough, as for a method."""
    held = _effects.get(record.name)
    if held is None or held.is_method:
        return None
    identity = "" if record.identity.startswith("run:") else record.identity
    return use_of(held, branch, request, identity, None, compensates=record.compensates)


finders.append(find_call)


def effect(
    contract: Contract | Promises,
    *,
    identity: str | Callable[..., str] | None = None,
    scope: Scope | Callable[[], Scope] | None = None,
    timeout: timedelta | float = DEFAULT_TIMEOUT_SECONDS,
    budget: timedelta | float = DEFAULT_BUDGET_SECONDS,
    name: str | None = None,
    formerly: str | tuple[str, ...] = (),
    needs_approval: bool | str = False,
) -> Callable[[Callable[..., R]], Effect[..., R]]:
    """Make a function an effect: recorded as intended before it is sent, and never repeated blindly.

    The function's first parameter is `attempt`; callers leave it out. `identity` is the business key, such as
    `"review:{partner}"`, claimed once in the whole store; without it the run's id and the place in the workflow are the
    identity. `scope` names where it goes (account, environment, region, endpoint, credential): it is recorded with the
    intent, and a resend elsewhere raises ScopeChanged, since the key would not count there. `timeout` (seconds)
    bounds one try: pass `attempt.timeout` to your client. `budget` bounds how long an effect that was not sent, or may
    be repeated, is tried again, across restarts. With `needs_approval=True` it is sent only if this run was granted an
    approval of exactly this request, or (`needs_approval="summary"`) of exactly that argument's value; else
    NotApproved is raised, and nothing is written. When the call returns, the outcome is on disk. A crash inside leaves
    an intent; the next owner settles it by `contract` alone.
    """
    if not isinstance(cast("Any", contract), Contract | Promises) or isinstance(cast("Any", contract), Effect):
        raise UsageError(
            "@effect needs a contract: @effect(keyed(...)), natural(), lookup(...), opaque(), same_transaction(...) or "
            f"receivers.get(...); found {contract!r}"
        )
    return lambda function: Effect(
        function,
        contract,
        identity=identity,
        scope=scope,
        timeout=timeout,
        budget=budget,
        name=name,
        formerly=formerly,
        needs_approval=needs_approval,
    )


def compensate(confirmed: Confirmed[Any]) -> Any:
    """Undo a confirmed effect (a `Confirmed` from `x.outcome(...)`), as an effect of its own; once, ever."""
    code = getattr(cast("Any", confirmed), "code", None)
    if not isinstance(code, Effect):
        name = getattr(confirmed, "name", confirmed)
        raise UsageError(
            f"no effect named {name!r} is known here; surefoot.compensate() needs the Confirmed of x.outcome(...)"
        )
    return cast("Effect[..., Any]", code).undo(confirmed)
