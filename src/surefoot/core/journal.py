"""The journal of a run: entries, the chain that seals them, and replay by slot.

Slot = branch path + name + occurrence. A recorded entry is handed out once, when the code asks for its slot with the
same arguments. Code that changed shows as an entry that nobody asks for, and while one of a branch is unread, no
effect of that branch is sent. The recorded position is only a witness for reports.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from . import calls
from .digest import chain_link, chain_seed
from .errors import Damaged, Diverged
from .ids import branch_of, slot_of

PREVIEW_CHARACTERS = 80
SPENT = "spent:"
"""Slots of what bodies reported to have used: no code asks for them, since a body is not replayed."""

NOTE = "note:"
"""Slots of remarks for whoever reads the timeline; the code knows nothing of them."""

FENCE = "fence:"
"""Slots of places that somebody else than a run's owner has taken, so that the owner cannot write there (I5)."""


class EntryKind(IntEnum):
    """What an entry records. Numbers are stored; they never change."""

    STEP = 1
    FAILURE = 2
    INTENT = 3
    OUTCOME = 4
    MARK = 5


_FAMILY: dict[int, str] = {
    EntryKind.STEP: "step",
    EntryKind.FAILURE: "step",
    EntryKind.INTENT: "effect",
    EntryKind.OUTCOME: "effect",
    EntryKind.MARK: "mark",
}


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An entry before it has its place in the chain."""

    kind: int
    slot: str
    args_digest: bytes
    preview: str
    value: bytes
    at: float
    attempts: int = 1


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A sealed entry as it is stored; `digest` chains it to the one before."""

    seq: int
    kind: int
    slot: str
    args_digest: bytes
    preview: str
    value: bytes
    at: float
    attempts: int
    digest: bytes

    def text(self) -> str:
        """For reports: what was recorded, and where it stood."""
        family = "call" if calls.is_call(self.slot) else _FAMILY[self.kind]
        return f"{family} {self.slot}({self.preview})  [entry {self.seq}]"


class Head(msgspec.Struct, frozen=True, gc=False):
    """The end of a run's journal."""

    length: int
    digest: bytes


def first_head(run_id: str) -> Head:
    """The head of an empty journal."""
    return Head(0, chain_seed(run_id))


def milliseconds(at: float) -> int:
    """An entry's time as it is stored and sealed."""
    return int(at * 1000 + 0.5)


def _described(seq: int, kind: int, slot: str, preview: str, at_ms: int, attempts: int) -> str:
    return f"{seq}\0{kind}\0{slot}\0{preview}\0{at_ms}\0{attempts}"


def seal(head: Head, draft: Draft) -> tuple[Entry, Head]:
    """Give a draft its place at the end of the chain."""
    seq, kind, slot, preview, attempts = head.length, draft.kind, draft.slot, draft.preview, draft.attempts
    at_ms = milliseconds(draft.at)
    described = _described(seq, kind, slot, preview, at_ms, attempts)
    link = chain_link(head.digest, described, draft.args_digest, draft.value)
    entry = Entry(seq, kind, slot, draft.args_digest, preview, draft.value, at_ms / 1000, attempts, link)
    return entry, Head(seq + 1, link)


def verify(run_id: str, entries: list[Entry]) -> Head:
    """Check every link; returns the head. Raises Damaged naming the first entry that does not fit."""
    length, link = 0, chain_seed(run_id)
    for entry in entries:
        if entry.seq != length:
            raise Damaged(f"run {run_id!r}", f"entry {length} is missing (found entry {entry.seq} in its place)")
        described = _described(entry.seq, entry.kind, entry.slot, entry.preview, milliseconds(entry.at), entry.attempts)
        link = chain_link(link, described, entry.args_digest, entry.value)
        if link != entry.digest:
            raise Damaged(f"entry {entry.seq} ({entry.slot}) of run {run_id!r}", "its bytes do not match its digest")
        length += 1
    return Head(length, link)


class Branch:
    """One line of a run's code: the root, or a child made by gather, a task or `first`."""

    __slots__ = ("busy", "children", "counts", "known", "ordinal", "path", "prefix", "stopped")

    def __init__(self, path: str, prefix: tuple[int, ...] = ()) -> None:
        """`counts`: how often each name was asked for here; `busy`: what is in flight here, for misuse reports.

        `stopped`: what this branch, and only it, has to raise again if its code swallowed it. `prefix` and `ordinal`
        order what happens by its place in the code. What is done in a `known` one was asked for by a recorded answer,
        so it is on the recorded path whatever else was asked for yet.
        """
        self.known = False
        self.prefix, self.ordinal = prefix, 0
        self.path = path
        self.counts: dict[str, int] = {}
        self.children = 0
        self.busy = ""
        self.stopped: BaseException | None = None

    def next_place(self) -> tuple[int, ...]:
        """The next place in the code's order, in which a child stands where it was opened."""
        place = (*self.prefix, self.ordinal)
        self.ordinal += 1
        return place

    def next_slot(self, name: str) -> tuple[str, int]:
        """The slot of the next use of `name` in this branch."""
        occurrence = self.counts.get(name, 0)
        self.counts[name] = occurrence + 1
        return slot_of(self.path, name, occurrence), occurrence


def _within(seq: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(start <= seq < end for start, end in ranges)


class Replay:
    """What a run has recorded and the code has not asked for yet."""

    def __init__(self, run_id: str, entries: list[Entry], tentative: tuple[tuple[int, int], ...] = ()) -> None:
        """`entries` must be verified; those of a `tentative` range, effects apart, may stay unread."""
        self.run_id = run_id
        self._recorded: dict[str, Entry] = {}
        self._unread: dict[str, int] = {}
        self.root, self.calls = Branch(""), Branch(calls.ROOT)
        self._opened: dict[str, Branch] = {"": self.root, calls.ROOT: self.calls}
        self.cut: set[str] = set()
        self._optional: set[str] = set()
        self._tries: dict[str, list[Entry]] = {}
        self._tries_read: dict[str, int] = {}
        self._last = -1
        mark = int(EntryKind.MARK)
        for entry in entries:
            slot = entry.slot
            if entry.kind == mark and self._is_beside(entry):
                continue
            self._last = entry.seq
            if slot not in self._recorded:
                if tentative and _FAMILY[entry.kind] != "effect" and _within(entry.seq, tentative):
                    self._optional.add(slot)
                else:
                    branch = branch_of(slot)
                    self._unread[branch] = self._unread.get(branch, 0) + 1
            self._recorded[slot] = entry

    def _is_beside(self, entry: Entry) -> bool:
        """True for a mark that no code asks for: a report, a remark, a fence, a try that failed."""
        if calls.is_try(entry.slot):
            self._tries.setdefault(calls.slot_of_try(entry.slot), []).append(entry)
            return True
        return entry.slot.startswith((SPENT, NOTE, FENCE))

    def open_child(self, parent: Branch) -> Branch:
        """A child branch; its path is fixed by the order of creation, so finishing order never matters."""
        path = f"{parent.path}.{parent.children}" if parent.path else str(parent.children)
        parent.children += 1
        child = Branch(path, parent.next_place())
        if self._recorded:
            self._opened[path] = child
        return child

    def open_scope(self, parent: Branch, name: str) -> Branch:
        """The call scope below `parent` that is opened now; the second one of its name is another."""
        count = parent.counts.get(f"scope {name}", 0)
        parent.counts[f"scope {name}"] = count + 1
        path = slot_of(parent.path, calls.in_path(name), count)
        scope = Branch(path, self.root.next_place())
        self._opened[path] = scope
        return scope

    def open_beside(self, scope: Branch, text: str, *, known: bool) -> Branch:
        """A branch for one thing that is done for a call scope, found by what it is and not by when it is done."""
        branch = Branch(f"{scope.path}[{calls.in_path(text)}]", self.root.next_place())
        self._opened[branch.path] = branch
        branch.known = known
        return branch

    def next_try(self, slot: str) -> Entry | None:
        """The next failed attempt at this call, if anything is recorded after it, so that whoever asked has acted.

        One with nothing behind it is not repeated: the call is made anew.
        """
        read = self._tries_read.get(slot, 0)
        tries = self._tries.get(slot, ())
        if read >= len(tries):
            return None
        if tries[read].seq > self._last:
            return None
        self._tries_read[slot] = read + 1
        return tries[read]

    def count_tries(self, slot: str) -> int:
        """How many failed attempts at this call are recorded."""
        return len(self._tries.get(slot, ()))

    def opened(self, path: str) -> Branch:
        """The branch with this path, if replay has opened it, else one that stands for it."""
        return self._opened.get(path) or Branch(path)

    def is_recorded(self, branch: Branch, *names: str) -> bool:
        """True if the next use of `names[0]` in this branch is recorded, under it or a former name."""
        occurrence = branch.counts.get(names[0], 0)
        return any(slot_of(branch.path, name, occurrence) in self._recorded for name in names)

    def is_behind(self, branch: Branch) -> bool:
        """True while recorded entries of this branch, or of branches that it has yet to open, are unread."""
        return bool(self._recorded) and bool(self._stray(branch))

    def take(
        self, branch: Branch, names: tuple[str, ...], args_digest: bytes, preview: str, family: str
    ) -> tuple[str, Entry | None]:
        """The slot of the next use of `names[0]` here, and its entry if one is recorded (also under a former name).

        Raises Diverged when the recorded entry was made with other arguments or by another kind of thing.
        """
        slot, occurrence = branch.next_slot(names[0])
        if not self._recorded:
            return slot, None
        recorded = slot if slot in self._recorded else self._former(branch, names, occurrence)
        if not recorded:
            return slot, None
        entry = self._recorded[recorded]
        if _FAMILY[entry.kind] != family or entry.args_digest != args_digest:
            how = "with other arguments" if _FAMILY[entry.kind] == family else "as another kind"
            asked = f"{family} {slot}({preview})"
            raise Diverged(self.run_id, f"{slot} was recorded {how}", [entry.text()], asked)
        del self._recorded[recorded]
        if recorded in self._optional:
            self._optional.discard(recorded)
        else:
            self._unread[branch.path] -= 1
        return slot, entry

    def take_beside(self, slot: str) -> Entry | None:
        """The entry at exactly this slot, which stands beside one that was just taken."""
        entry = self._recorded.pop(slot, None)
        if entry is None:
            return None
        if slot in self._optional:
            self._optional.discard(slot)
        else:
            self._unread[branch_of(slot)] -= 1
        return entry

    def _former(self, branch: Branch, names: tuple[str, ...], occurrence: int) -> str:
        """The recorded slot of this use under a former name, or ""."""
        slots = (slot_of(branch.path, name, occurrence) for name in names[1:])
        return next((slot for slot in slots if slot in self._recorded), "")

    def may_send(self, branch: Branch, asked: str, *, undoes: bool = False) -> None:
        """Raises Diverged while a recorded entry of this branch, or of a child that was never opened, is unread.

        So it does for the branch's call scope, unless the effect undoes another: then nobody reads there any more.
        """
        if self._recorded:
            branches = [branch] if undoes or branch.known else [branch, self.call_scope(branch)]
            self._refuse_stray(branches, "an effect would be sent", asked)

    def may_wait(self, branch: Branch, asked: str) -> None:
        """Raises Diverged likewise: code that changed would wait for a message that nobody sends, and read it."""
        self._refuse_stray([branch], "a message would be waited for", asked)

    def _refuse_stray(self, branches: list[Branch], what: str, asked: str) -> None:
        stray = [path for branch in branches for path in self._stray(branch)] if self._recorded else []
        if stray:
            unread = [e.text() for e in self._recorded.values() if branch_of(e.slot) in stray]
            what = f"{what} while recorded entries of its branch were not asked for"
            raise Diverged(self.run_id, what, unread, asked)

    def _stray(self, branch: Branch) -> list[str]:
        stray = [path for path, count in self._unread.items() if count and self._nearest_opened(path) == branch.path]
        return [path for path in stray if not self._is_cut(path)] if self.cut and stray else stray

    def _is_cut(self, path: str) -> bool:
        """True if all that is unread in this call scope was asked for by branches that were cancelled here."""
        if not calls.is_scope(path):
            return False
        unread = [entry for entry in self._recorded.values() if branch_of(entry.slot) == path]
        asked_by = [calls.asker(entry.slot, entry.value) for entry in unread]
        return all(any(by == cut or by.startswith(f"{cut}.") for cut in self.cut) for by in asked_by)

    def _nearest_opened(self, path: str) -> str:
        """The branch itself, or the nearest one above it that the code has opened."""
        while path not in self._opened:
            path = calls.above(path)
        return path

    def call_scope(self, branch: Branch) -> Branch:
        """The call scope that a branch belongs to: the run's own, unless one was opened."""
        path = calls.scope_path(branch.path)
        return branch if path == branch.path else self.opened(path)

    def lags(self, branch: Branch) -> bool:
        """True while recorded entries of this branch's call scope, or of one below that is yet to open, are unread."""
        return bool(self._recorded) and not branch.known and bool(self._stray(self.call_scope(branch)))

    def may_call(self, branch: Branch, asked: str) -> None:
        """Raises Diverged while such entries are unread: an answer that nobody recorded would take their place."""
        self._refuse_stray([self.call_scope(branch)], "a call would be made", asked)

    def unread(self) -> list[Entry]:
        """Entries that the code has not asked for, in recorded order."""
        return sorted(self._recorded.values(), key=lambda entry: entry.seq) if self._recorded else []
