"""Every error names what was expected, what was found and what to do next.

One tree, because a caller who wants "anything Surefoot says" catches one class. What the *world* did is a value
(`outcome.py`), never an exception of this tree, except `Refused`, which is both. Signals that must cross `except
Exception` in a user's code (suspension, a lost lease, shutdown) are BaseExceptions and live at the end.
"""

from __future__ import annotations

from collections.abc import Sequence


class SurefootError(Exception):
    """Base of every error that Surefoot raises on purpose."""


class UsageError(SurefootError):
    """The code asked for something that cannot be kept safe; nothing was written or sent."""


class ValueRefused(UsageError):
    """A value cannot be stored exactly; `path` says where in it, `why` says what is wrong."""

    def __init__(self, what: str, path: str = "", why: str = "") -> None:
        super().__init__(f"{what}{path and ' at ' + path} cannot be stored exactly: {why}" if why else what)
        self.what, self.path, self.why = what, path, why
        self.rebuild_args = (what, path, why)


class StepFailed(SurefootError):
    """A step, or a workflow, failed with an exception that is not a builtin and not named in its `raises=`."""

    def __init__(self, step: str, type_name: str, message: str, what: str = "step") -> None:
        super().__init__(f"{what} {step!r} failed: {type_name}: {message}")
        self.step, self.type_name, self.message, self.what = step, type_name, message, what
        self.rebuild_args = (step, type_name, message) if what == "step" else (step, type_name, message, what)


class Refused(SurefootError):
    """The receiver refused the effect: it did not happen and will not. Also a value: see `Effect.outcome`."""

    def __init__(self, reason: str = "refused", *, code: int | str | None = None, effect: str = "") -> None:
        super().__init__(reason)
        self.reason, self.code, self.effect = reason, code, effect


class NotSent(SurefootError):
    """Raised by an effect's body: the request has certainly not left, so it may be tried again."""


class Exists(SurefootError):
    """Raised by an effect's body: the receiver says that the object is there already.

    With `receipt` it is known to be ours, and the effect is confirmed with it. Without, the lookup decides.
    """

    def __init__(self, receipt: object = None) -> None:
        super().__init__("the receiver says that it exists already")
        self.receipt = receipt


class Several(SurefootError):
    """Raised by a lookup: more than one object matches, so a person has to tell."""


class Abandoned(SurefootError):
    """A person gave this effect up; it will not be sent, and nobody knows whether it happened."""


class Denied(SurefootError):
    """An approval was denied: by whom, why and when; `who` is "" when nobody decided in time."""

    def __init__(self, id: str, who: str, why: str, at: float) -> None:
        how = f"by {who}{why and ': ' + why}" if who else f"since {why or 'nobody decided in time'}"
        super().__init__(f"approval {id} was denied {how}")
        self.id, self.who, self.why, self.at = id, who, why, at
        self.rebuild_args = (id, who, why, at)


class NotApproved(SurefootError):
    """No approval releases exactly this request of the effect; nothing was written or sent."""

    def __init__(self, effect: str, asked: str, *why: str) -> None:
        found = "; ".join(why) or "no approval of it was granted in this run"
        super().__init__(
            f"effect {effect!r} needs approval, and this request has none.\n  asked for: {asked}\n  found: {found}\n"
            "Nothing was written or sent. An approval releases exactly the request that was shown, once, and until it "
            f"expires: surefoot.approve({effect}.request(...), by=..., within=...) with these arguments comes first."
        )
        self.effect, self.asked, self.why = effect, asked, why
        self.rebuild_args = (effect, asked, *why)


class ApprovalNotFound(SurefootError):
    """Nobody asks for an approval of this id; the nearest ones are named."""

    def __init__(self, id: str, near: Sequence[str]) -> None:
        listed = f"; nearest: {', '.join(near)}" if near else ""
        super().__init__(f"no approval {id!r} is asked for in this store{listed}; `surefoot approvals` lists them")
        self.id, self.near = id, tuple(near)


class ApprovalClosed(SurefootError):
    """This approval cannot be decided (any more); `why` says what stands in the way. Nothing was changed."""

    def __init__(self, id: str, why: str) -> None:
        super().__init__(f"approval {id}: {why}. Nothing was changed.")
        self.id, self.why = id, why


class Disagreement(SurefootError):
    """Another request stands under the same identity. Both proposals are kept; nothing was sent for this one."""

    def __init__(self, identity: str, held: str, asked: str, holder: str) -> None:
        super().__init__(
            f"identity {identity!r} is held by {holder} with another request.\n"
            f"  recorded: {held}\n  asked:    {asked}\n"
            "Nothing was sent for the second. Both proposals are listed by `surefoot doubts`; "
            "use another identity for another action."
        )
        self.identity, self.held, self.asked, self.holder = identity, held, asked, holder
        self.rebuild_args = (identity, held, asked, holder)


class RunMismatch(UsageError):
    """The id belongs to a run of another workflow or with other arguments; both sides are shown."""

    def __init__(self, run_id: str, recorded: str, asked: str) -> None:
        super().__init__(
            f"run {run_id!r} exists with other arguments.\n  recorded: {recorded}\n  asked:    {asked}\n"
            "Use the recorded arguments to resume it, or another id to start another run."
        )
        self.run_id, self.recorded, self.asked = run_id, recorded, asked


class RunWaiting(SurefootError):
    """The run cannot go on by itself; `reason` says what it waits for and how to give it that.

    `ends` is True when time, a message or another run may end the wait, and not only a person's decision in doubt.
    """

    def __init__(self, run_id: str, reason: str, *, ends: bool = False) -> None:
        super().__init__(f"run {run_id!r} waits: {reason}")
        self.run_id, self.reason, self.ends = run_id, reason, ends


class RunBusy(SurefootError):
    """The run is live elsewhere and `when_running="refuse"` was asked for."""

    def __init__(self, run_id: str, holder: str) -> None:
        super().__init__(
            f"run {run_id!r} is being run by {holder}; it was refused, not run twice. "
            'Wait for it with when_running="wait", or end that process: its run is then taken over at once.'
        )
        self.run_id, self.holder = run_id, holder


class RunCancelled(SurefootError):
    """The run was cancelled."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id!r} was cancelled")
        self.run_id = run_id
        self.rebuild_args = (run_id,)


class BudgetExceeded(SurefootError):
    """The run has used more than its budget allows, and ended as failed: nothing new was begun or sent."""

    def __init__(self, run_id: str, limit: str, allowed: str, used: str) -> None:
        super().__init__(
            f"run {run_id!r} has passed its budget: {limit} {used}, allowed {allowed}. It stopped there; what was open "
            "was settled. Start another run with a larger budget to do it again"
        )
        self.run_id, self.limit, self.allowed, self.used = run_id, limit, allowed, used
        self.rebuild_args = (run_id, limit, allowed, used)


class RunNotFound(SurefootError):
    """There is no such run in this store."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r} in this store; `surefoot runs` lists those that exist")
        self.run_id = run_id


def ended(status: str) -> str:
    """How a run ended, as the verb of a sentence about it."""
    return "was cancelled" if status == "cancelled" else f"has {status}"


class RunEnded(UsageError):
    """The run has ended, so that it reads no message any more, and undoes nothing; nothing was kept."""

    def __init__(self, run_id: str, status: str, what: str, so: str = "") -> None:
        so = so or f"it reads no message any more, and {what} was not kept"
        super().__init__(f"run {run_id!r} {ended(status)}; {so}")
        self.run_id, self.status, self.what = run_id, status, what


class Damaged(SurefootError):
    """A stored record does not match its digest: something changed its bytes. Nothing was replayed from it."""

    def __init__(self, where: str, detail: str) -> None:
        super().__init__(
            f"{where} is damaged: {detail}. The run stops and nothing was replayed from it. "
            "Check the disk, and restore the store from a copy taken before the damage."
        )
        self.where = where


class Diverged(SurefootError):
    """The code no longer matches its journal; the run stopped before any effect left."""

    def __init__(self, run_id: str, what: str, recorded: Sequence[str], asked: str) -> None:
        self.run_id, self.what, self.recorded, self.asked = run_id, what, tuple(recorded), asked
        self.place = ""
        super().__init__(what)

    def __str__(self) -> str:
        """Both sides, the place in the code, and the ways through."""
        shown = "\n".join(f"  recorded: {line}" for line in self.recorded[:8])
        more = f"\n  (and {len(self.recorded) - 8} more)" if len(self.recorded) > 8 else ""
        place = f" ({self.place})" if self.place else ""
        return (
            f"run {self.run_id!r} diverged: {self.what}; no effect was sent.\n{shown}{more}\n"
            f"  the code asks for: {self.asked}{place}\n"
            'Ways through: a renamed step takes `formerly="old name"`; changed flow goes behind `patched("name")`; '
            "or run the old code until this run ends. `surefoot show --diverged` prints both sides."
        )


class ScopeChanged(Diverged):
    """The account, region or endpoint is another one than when the intent was recorded; nothing was sent."""

    def __init__(self, run_id: str, effect: str, receiver: str, field: str, recorded: str, found: str) -> None:
        super().__init__(
            run_id, f"the {field} of effect {effect!r} changed", [f"{field}={recorded}"], f"{field}={found}"
        )
        self.effect, self.receiver, self.field = effect, receiver, field

    def __str__(self) -> str:
        """Both sides, why it matters, and the way out."""
        recorded, at = self.recorded[0], f" at {self.receiver}" if self.receiver else ""
        return (
            f"{self.what}: the intent was recorded with {recorded}, the code now says {self.asked}. A key protects "
            f"only in its own {self.field}{at}, so nothing was sent or looked up. Run it with {recorded}, or end the "
            "doubt with `surefoot resolve`."
        )


class NotDeterministic(UsageError):
    """The workflow chose by time or finishing order in a way that a replay could not repeat."""


class StoreError(SurefootError):
    """The store could not do its work; what was acknowledged before stays."""


class StoreRefused(StoreError):
    """The store was refused at open because it could not keep its promise there."""


class StoreUnreachable(StoreRefused):
    """Nobody answers where the store should be; nothing says that it is not sound, so later it may be there."""


class NotCommitted(StoreError):
    """The write is certainly not in the store."""


class CommitUnknown(StoreError):
    """The commit may or may not have happened; the store has to be read again before anything else."""


class ForkedStore(StoreError):
    """The process forked after the store was opened."""

    def __init__(self, opened_by: int, used_by: int) -> None:
        super().__init__(
            f"this store was opened by process {opened_by} and is used by process {used_by} after a fork. "
            "A SQLite connection does not survive a fork: open Surefoot in the child, after the fork."
        )


class Signal(BaseException):
    """Base of what has to cross a user's `except Exception`."""


class Halt(Signal):
    """The run must stop here and now with `error`, whatever the workflow would do with an ordinary exception."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Suspend(Signal):
    """The branch cannot go on: an effect is parked, or a timer, message or run is waited for (`Session.waits`)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LeaseLost(Signal):
    """Another owner has the run now; this one stops and changes nothing."""


class EffectMoved(Signal):
    """The effect was settled or taken by somebody else meanwhile; look at it again."""


class CancelRequested(Signal):
    """The run was cancelled while it was running here."""


class OverBudget(Signal):
    """The run has passed its budget: it ends here, whatever the workflow would do with an ordinary exception."""

    def __init__(self, error: BudgetExceeded) -> None:
        super().__init__(str(error))
        self.error = error


class Stopping(Signal):
    """The process is shutting down; the run is released and can be resumed."""
