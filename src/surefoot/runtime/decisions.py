"""The deciding side of approvals: who is asked for what, what exactly is to be approved, and the decision.

Nothing here trusts what a person was shown a minute ago: the decision carries the digest that was shown, and the store
compares it with what is asked for now, in the transaction that keeps the decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ..core.approval import Asked, Decision, digest_of, message_name, shown
from ..core.asking import DecideApproval
from ..core.digest import BLOB_MARK
from ..core.errors import ApprovalClosed, ApprovalNotFound, Damaged, UsageError, ended
from ..core.ids import check_id
from ..core.journal import Entry, EntryKind
from ..core.run import FINAL, UNFINISHED, Run, Waits
from ..core.view import Answer, Verdict
from .approvals import decision_mail
from .spans import instant
from .waiting import refuse_in_workflow

if TYPE_CHECKING:
    from .engine import Engine

PREFIX = message_name("")
EVERYTHING = 1 << 31
PAST_RUNS = 1000
"""How many of the newest runs are looked through for an approval that nobody asks for any more."""
ID_CHARACTERS_MIN = 4
WHY_CHARACTERS_MAX = 4000


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True):
    """One approval that was asked for, as it stands. Instants are seconds since the epoch.

    `status` is pending, approved, denied, expired or ended (its run was over first). `text` is the artifact on one
    line; `artifact` is all of it, exactly the canonical JSON that `digest` names, where one approval was asked for by
    its id, else empty. `effect` is set when it is that effect's request.
    """

    id: str
    run: str
    by: str
    digest: str
    until: float
    status: str
    text: str
    effect: str = ""
    artifact: bytes = b""
    asked_at: float = 0.0
    decision: Decision | None = None


# --- looking ----------------------------------------------------------------------------------------------------


def list_pending(engine: Engine) -> list[ApprovalView]:
    """What is asked for and not decided, the soonest to expire first; expired ones that their run has yet to notice."""
    found = [(run, wait) for run in _unfinished(engine) for wait in run.waits if wait.kind == "approval"]
    views = [_view_of_wait(engine, run, wait) for run, wait in found if not _decided(engine, run, wait.name)]
    return sorted(views, key=lambda view: (view.until, view.id))


def _unfinished(engine: Engine) -> list[Run]:
    return engine.store.find_runs(tuple(sorted(UNFINISHED)), limit=EVERYTHING)


def _decided(engine: Engine, run: Run, name: str) -> bool:
    return bool(run.mail) and any(mail.name == name for mail in engine.store.board.read_mail(run.id))


def _view_of_wait(engine: Engine, run: Run, wait: Waits) -> ApprovalView:
    over = engine.time() >= wait.until
    return ApprovalView(
        id=wait.name.removeprefix(PREFIX),
        run=run.id,
        by=wait.who,
        digest=wait.digest,
        until=wait.until,
        status="ended" if run.cancel_at else "expired" if over else "pending",
        text=wait.detail,
    )


def find(engine: Engine, approval_id: str, run_id: str | None = None) -> ApprovalView:
    """One approval with its whole artifact, by its id or a unique beginning of it; decided ones too.

    `run_id` spares looking for it. Raises ApprovalNotFound; Damaged if its bytes do not match its digest.
    """
    check_id(approval_id, "approval id")
    if run_id is not None:
        found = _asked_in(engine, run_id, approval_id)
        if found is None:
            raise ApprovalNotFound(approval_id, ())
        return _view_of_asked(engine, *found)
    pending = {wait.name.removeprefix(PREFIX): run.id for run in _unfinished(engine) for wait in _approvals(run)}
    exact = _complete(approval_id, list(pending))
    if exact is not None:
        found = _asked_in(engine, pending[exact], exact)
    else:
        runs = (run.id for run in engine.store.find_runs(limit=PAST_RUNS))
        found = next((past for run in runs if (past := _asked_in(engine, run, approval_id)) is not None), None)
    if found is None:
        raise ApprovalNotFound(approval_id, _nearest(approval_id, list(pending)))
    return _view_of_asked(engine, *found)


def _approvals(run: Run) -> list[Waits]:
    return [wait for wait in run.waits if wait.kind == "approval"]


def _complete(wanted: str, known: Sequence[str]) -> str | None:
    """The one known id that is `wanted`, or begins so; None when there is none."""
    if wanted in known:
        return wanted
    begun = [name for name in known if name.startswith(wanted.lower()) and len(wanted) >= ID_CHARACTERS_MIN]
    if len(begun) > 1:
        raise UsageError(f"{wanted!r} begins {len(begun)} approvals; use one whole id: {', '.join(sorted(begun)[:8])}")
    return begun[0] if begun else None


def _nearest(wanted: str, known: Sequence[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(wanted, known, n=3, cutoff=0.5) or sorted(known)[:3]


def _asked_in(engine: Engine, run_id: str, approval_id: str) -> tuple[Run, Asked] | None:
    try:
        read = engine.store.read_run(run_id)
    except Damaged:
        return None
    if read is None:
        return None
    run, entries = read
    asked = (_asked_of(engine, entry) for entry in entries if _is_request(entry))
    return next(((run, each) for each in asked if each.id == approval_id), None)


def _is_request(entry: Entry) -> bool:
    return entry.kind == EntryKind.MARK and entry.slot.rpartition("/")[2].partition("#")[0] == "approval"


def _asked_of(engine: Engine, entry: Entry) -> Asked:
    value = engine.store.read_blob(entry.value[1:]) if entry.value[:1] == BLOB_MARK else entry.value
    asked = msgspec.json.decode(value, type=Asked)
    if digest_of(asked.effect, bytes(asked.artifact)) != asked.digest:
        raise Damaged(f"approval {asked.id}", "its artifact does not match its digest")
    return asked


def _view_of_asked(engine: Engine, run: Run, asked: Asked) -> ApprovalView:
    mail = (mail for mail in engine.store.board.read_mail(run.id) if mail.name == message_name(asked.id))
    decision = next((msgspec.json.decode(each.value, type=Decision) for each in mail), None)
    if decision is not None:
        status = decision.decision
    elif run.status in FINAL or run.cancel_at:
        status = "ended"
    else:
        status = "expired" if engine.time() >= asked.until else "pending"
    return ApprovalView(
        id=asked.id,
        run=run.id,
        by=asked.by,
        digest=asked.digest,
        until=asked.until,
        status=status,
        text=shown(asked.effect, bytes(asked.artifact)),
        effect=asked.effect,
        artifact=bytes(asked.artifact),
        asked_at=asked.asked_at,
        decision=decision,
    )


# --- deciding ---------------------------------------------------------------------------------------------------


def decide(
    engine: Engine,
    approval_id: str,
    *,
    approved: bool,
    who: str,
    why: str,
    digest: str | None,
    run_id: str | None = None,
) -> ApprovalView:
    """Approve or deny, durably; the run goes on by itself. The first decision counts.

    Raises ApprovalNotFound, and ApprovalClosed when it was decided, has expired, is no longer asked for, asks for
    another digest, or its run has ended.
    """
    refuse_in_workflow("sf.approve()" if approved else "sf.deny()")
    check_id(who, "who")
    why = _check_why(why, needed=not approved)
    if (approved or digest is not None) and not (isinstance(digest, str) and digest):
        raise UsageError(f"digest must be that of the artifact which was shown (ApprovalView.digest), found {digest!r}")
    engine.join()
    view = find(engine, approval_id, run_id)
    shown_digest = view.digest if digest is None else digest
    at = engine.time()
    decision = Decision(decision="approved" if approved else "denied", digest=shown_digest, who=who, at=at, why=why)
    mail = decision_mail(view.run, view.id, decision)
    write = DecideApproval(run_id=view.run, mail=mail, digest=shown_digest, at=at, stamp=next(engine.stamps))
    answer = engine.committer.commit(write)
    after = find(engine, view.id, view.run)
    if answer.verdict is not Verdict.DONE:
        raise ApprovalClosed(view.id, _closed(after, answer, shown_digest))
    engine.on_change()
    return after


def _check_why(why: object, *, needed: bool) -> str:
    if not isinstance(why, str):
        raise UsageError(f"why must be a string, found {type(why).__name__}")
    text = why.strip()
    if needed and not text:
        raise UsageError("a denial needs its reason (why): the workflow gets it, and it is kept")
    if len(text) > WHY_CHARACTERS_MAX:
        raise UsageError(f"why has {len(text):,} characters, {WHY_CHARACTERS_MAX:,} at most")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError("why holds a surrogate, which no text has")
    return text


def _closed(view: ApprovalView, answer: Answer, digest: str) -> str:
    decision = view.decision
    if decision is not None and decision.decision == "expired":
        return f"it expired at {instant(view.until)}, undecided"
    if decision is not None:
        reason = f": {decision.why}" if decision.why else ""
        return f"{decision.who} has {decision.decision} it already, at {instant(decision.at)}{reason}"
    match answer.verdict:
        case Verdict.ILLEGAL:
            return f"it expired at {instant(view.until)}; its run goes on as denied"
        case Verdict.DISAGREES:
            return f"the digest that was shown is {digest}, but {view.digest} is asked for now; look at it again"
        case Verdict.ENDED:
            run = answer.run
            how = ended(run.status) if run is not None and run.status in FINAL else "is being cancelled"
            return f"its run {view.run!r} {how}, and asks for nothing any more"
        case _:
            return f"run {view.run!r} no longer asks for it: its branch was cancelled"
