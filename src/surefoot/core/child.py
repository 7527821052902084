"""Child runs: started in one commit with the parent's journal entry, waited for, and cancelled with their parent.

A child's id is derived from its parent's and from the place in the code (or given), so that asking again is asking for
the same run. That a parent waits stands in its record; whoever ends the child wakes it in the same transaction, and a
parent that begins to wait after the child ended is awake at once, so there is no moment in which a wake-up gets lost.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .digest import BLOB_MARK, blake2b, short_digest
from .flows import RunState
from .journal import Branch, Draft, Entry, EntryKind
from .run import FINAL, Run, RunStatus
from .view import Answer, Blobs, Verdict, View, Write
from .writes import owned

ID_CHARACTERS_MAX = 200
STARTED, JOINED = "child:", "joined:"


class Joined(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a parent's journal keeps of a child's end: its status, and its result or failure as the child stored it."""

    status: RunStatus
    value: msgspec.Raw = msgspec.Raw(b"null")


def child_id(parent: str, slot: str) -> str:
    """The id of the child that is started at this slot: `parent/0.1/name#2`, shortened by a digest where it is long."""
    branch, _, name = slot.rpartition("/")
    text = "/".join(part for part in (parent, branch, name.removeprefix(STARTED)) if part)
    if len(text) <= ID_CHARACTERS_MAX:
        return text
    named = blake2b(text.encode(), digest_size=16, person=b"surefoot-child1").hexdigest()
    return f"{text[: ID_CHARACTERS_MAX - 33]}~{named}"


def children_of(entries: Iterable[Entry]) -> list[str]:
    """The ids of the children that these entries say were started."""
    started = (e for e in entries if e.kind == EntryKind.MARK and e.slot.rpartition("/")[2].startswith(STARTED))
    return [msgspec.json.decode(entry.value, type=str) for entry in started]


class StartChild(Write, frozen=True, kw_only=True):
    """Create a child run, nobody's yet, together with its parent's entry; or find it as it was created before."""

    fence: int
    child: Run
    draft: Draft
    blobs: Blobs = ()

    def decide(self, view: View) -> Answer:
        """Done with the child as it stands; exists when its id is another run's; cancelled, fenced or missing."""
        parent, held = view.run(self.run_id), view.run(self.child.id)
        if view.again and view.has_entry(self.run_id, self.draft.slot, self.draft.kind):
            return Answer(Verdict.DONE, run=held)
        verdict = owned(parent, self.fence)
        if verdict is Verdict.DONE and parent is not None and parent.cancel_at:
            verdict = Verdict.CANCELLED
        if verdict is not Verdict.DONE:
            return Answer(verdict, run=parent)
        if held is not None and not _is_same(held, self.child):
            return Answer(Verdict.EXISTS, run=held)
        if held is None:
            view.put_run(self.child)
            if self.blobs:
                view.put_blobs(self.blobs)
        view.append(self.run_id, self.draft)
        return Answer(Verdict.DONE, run=held or self.child)


def _is_same(held: Run, asked: Run) -> bool:
    return (held.parent, held.workflow, held.args_digest) == (asked.parent, asked.workflow, asked.args_digest)


# --- what a parent's code does ----------------------------------------------------------------------------------


def take_start(state: RunState, branch: Branch, workflow: str, arguments: bytes, preview: str) -> tuple[Draft, str]:
    """The place where a child is started: (its draft, the recorded child's id or "")."""
    args_digest = short_digest(arguments)
    slot, entry = state.replay.take(branch, (f"{STARTED}{workflow}",), args_digest, preview, "mark")
    if entry is not None:
        return Draft(EntryKind.MARK, entry.slot, args_digest, preview, b"", 0.0), msgspec.json.decode(
            entry.value, type=str
        )
    state.replay.may_send(branch, f"child {slot}({preview})")
    return Draft(EntryKind.MARK, slot, args_digest, preview, b"", 0.0), ""


def take_end(state: RunState, branch: Branch, workflow: str, child: str) -> tuple[Draft, bytes | None]:
    """The place where a child is joined: (its draft, what is recorded of its end)."""
    args_digest = short_digest(child.encode())
    slot, entry = state.replay.take(branch, (f"{JOINED}{workflow}",), args_digest, child, "mark")
    return Draft(EntryKind.MARK, slot, args_digest, child, b"", 0.0), None if entry is None else entry.value


def encode_id(child: str) -> bytes:
    """What the parent's journal keeps of a start."""
    return msgspec.json.encode(child)


def joined_value(run: Run, result: bytes) -> bytes:
    """What the parent keeps of a child that has ended; `result` is what the child stored, fetched."""
    assert run.status in FINAL and result[:1] != BLOB_MARK
    return msgspec.json.encode(Joined(status=run.status, value=msgspec.Raw(result or b"null")))


def joined_of(value: bytes) -> Joined:
    """The same, read back."""
    return msgspec.json.decode(value, type=Joined)
