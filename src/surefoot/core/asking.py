"""How an approval is asked for and decided: one write each, and the flow that asks.

The request is in the journal and among what the run waits for in one commit, so whoever can see it can rely on it, also
while other branches of the run still move. A decision is a message to the run, of which the first counts for ever;
that time is over is such a decision too, so a late approval and the expiry can never both be true.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from .approval import ASK_SLOT, Asked, digest_of, id_of, message_name, shown
from .commands import Commit, Flow, Now, Time, ask
from .digest import short_digest
from .dispatch_writes import SendMail
from .errors import Diverged
from .flows import Begun, RunState, check, spill, unspill
from .journal import PREVIEW_CHARACTERS, Branch, Draft, EntryKind
from .mail import Mail
from .run import FINAL, Run, Waits
from .view import Answer, Blobs, Verdict, View, Write
from .writes import owned

_encode = msgspec.json.encode


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow asks approval for.

    `names` are those of the effect whose request it is, `releases` those of the one effect that it releases.
    """

    content: bytes
    names: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()
    by: str
    within_seconds: float

    @property
    def effect(self) -> str:
        """The effect whose request it is, or ""."""
        return self.names[0] if self.names else ""

    def args_digest(self) -> bytes:
        """What must be the same on replay: the bytes, and who is asked."""
        return short_digest(_encode([self.by, bool(self.names)]) + self.content)

    def text(self) -> str:
        """The artifact on one line."""
        return shown(self.effect, self.content)

    def fits(self, asked: Asked) -> bool:
        """True if that is what was asked, perhaps under a former name of its effect."""
        return asked.effect in (self.names or ("",)) and asked.releases in (self.releases or ("",))


class AskApproval(Write, frozen=True, kw_only=True):
    """Put a request for approval into the journal, and among what the run waits for."""

    fence: int
    draft: Draft
    wait: Waits
    blobs: Blobs = ()

    def decide(self, view: View) -> Answer:
        """Done, fenced, or cancelled: then nothing was asked."""
        run = view.run(self.run_id)
        if not (view.again and view.has_entry(self.run_id, self.draft.slot, self.draft.kind)):
            verdict = owned(run, self.fence)
            if verdict is Verdict.DONE and run is not None and run.cancel_at:
                verdict = Verdict.CANCELLED
            if verdict is not Verdict.DONE or run is None:
                return Answer(verdict, run=run)
            view.append(self.run_id, self.draft)
            if self.blobs:
                view.put_blobs(self.blobs)
            view.put_run(replace(run, waits=(*run.waits, self.wait)))
        return Answer(Verdict.DONE)


class WithdrawAsk(Write, frozen=True, kw_only=True):
    """The branch that asked was cancelled: nobody waits for this approval any more."""

    fence: int
    name: str

    def decide(self, view: View) -> Answer:
        """Done, or fenced."""
        run = view.run(self.run_id)
        verdict = owned(run, self.fence)
        if verdict is Verdict.DONE and run is not None:
            view.put_run(_without(run, self.name))
        return Answer(verdict, run=run)


class DecideApproval(Write, frozen=True, kw_only=True):
    """Approve, deny, or (`expires`) say that the time is over. The first decision counts, for ever.

    `at` is by the clock of timers; `digest` is what the decider was shown.
    """

    mail: Mail
    digest: str
    at: float
    expires: bool = False

    def decide(self, view: View) -> Answer:
        """Done; exists: another was first; disagrees: another digest; illegal: not by this time; absent; ended."""
        run = view.run(self.run_id)
        if run is None:
            return Answer(Verdict.MISSING)
        before = [m for m in view.desk.mail(self.run_id) if m.name == self.mail.name]
        if before:
            mine = before[0].id == self.mail.id
            return Answer(Verdict.DONE if mine else Verdict.EXISTS, run=run)
        if run.status in FINAL or (run.cancel_at and not self.expires):
            return Answer(Verdict.ENDED, run=run)
        wait = next((w for w in run.waits if w.kind == "approval" and w.name == self.mail.name), None)
        if wait is None and not self.expires:
            return Answer(Verdict.ABSENT, run=run)
        if wait is not None and wait.digest != self.digest:
            return Answer(Verdict.DISAGREES, run=run)
        if wait is not None and (self.at >= wait.until) is not self.expires:
            return Answer(Verdict.ILLEGAL, run=run)
        answer = SendMail(run_id=self.run_id, mail=self.mail, first_only=True, stamp=self.stamp).decide(view)
        if answer.verdict is Verdict.DONE and answer.run is not None:
            view.put_run(_without(answer.run, self.mail.name))
        return answer


def _without(run: Run, name: str) -> Run:
    return replace(run, waits=tuple(wait for wait in run.waits if wait.name != name))


def ask_for(state: RunState, branch: Branch, artifact: Artifact) -> Flow[Asked]:
    """The request as it is recorded here, or recorded now. Durable, and to be seen, when it returns.

    Raises Diverged when the code asks for something else than what is recorded.
    """
    digest, preview = artifact.args_digest(), artifact.text()[:PREVIEW_CHARACTERS]
    slot, entry = state.replay.take(branch, (ASK_SLOT,), digest, preview, "mark")
    if entry is not None:
        asked = msgspec.json.decode((yield from unspill(entry.value)), type=Asked)
        if not artifact.fits(asked):
            raise Diverged(state.run_id, "another effect is to be approved", [shown_of(asked)], artifact.text())
        return asked
    state.begin(Begun.WAIT)
    state.replay.may_wait(branch, f"approval {artifact.text()}")
    now = yield from ask(Time())
    asked = Asked(
        id=id_of(state.run_id, slot),
        by=artifact.by,
        digest=digest_of(artifact.effect, artifact.content),
        artifact=msgspec.Raw(artifact.content),
        asked_at=now,
        until=now + artifact.within_seconds,
        effect=artifact.effect,
        releases=artifact.releases[0] if artifact.releases else "",
    )
    value, blobs = spill(_encode(asked), state.inline_bytes)
    at = yield from ask(Now())
    draft = Draft(EntryKind.MARK, slot, digest, preview, value, at)
    write = AskApproval(
        run_id=state.run_id, fence=state.fence, draft=draft, wait=wait_of(asked), blobs=blobs, stamp=next(state.stamps)
    )
    check((yield from ask(Commit(write))))
    return asked


def shown_of(asked: Asked) -> str:
    """What is asked for, on one line."""
    return shown(asked.effect, bytes(asked.artifact))


def wait_of(asked: Asked) -> Waits:
    """What the run waits for, as everybody can see it."""
    name = message_name(asked.id)
    return Waits(
        kind="approval", name=name, until=asked.until, detail=shown_of(asked), who=asked.by, digest=asked.digest
    )
