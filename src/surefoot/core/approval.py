"""Approvals: what is asked for, what was decided, and which effect a decision releases.

A person approves bytes, not a description of them: the digest names exactly the artifact that was shown, the decision
repeats it, and the effect is compared with it once more before its intent is written. So what was approved and what is
sent cannot come apart, whoever changes what in between.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import msgspec

from .digest import blake2b
from .errors import NotApproved
from .ids import branch_of
from .journal import Entry, EntryKind

ASK_SLOT = "approval"
SHOWN_CHARACTERS = 200
_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_CHARACTERS = 12
_encode = msgspec.json.encode


class EffectRequest:
    """What `x.request(...)` gives: one request of one effect, to be approved before it is sent.

    `arguments` is canonical JSON, byte for byte what the effect would record and send. It is no value of its own: it
    cannot be stored inside another one.
    """

    __slots__ = ("arguments", "effect", "names", "needs_approval")

    def __init__(self, names: tuple[str, ...], arguments: bytes, needs_approval: bool | str) -> None:
        """`names` are the effect's name and its former ones."""
        self.effect, self.names = names[0], names
        self.arguments, self.needs_approval = arguments, needs_approval

    def __repr__(self) -> str:
        """As it is shown to whoever approves it."""
        return shown(self.effect, self.arguments)


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the journal keeps of a request for approval: exactly the bytes that are asked for, and their digest.

    `effect` is set when they are its request; `releases` names the one effect that they release ("": any that takes
    them). `until` is by the clock of timers.
    """

    id: str
    by: str
    digest: str
    artifact: msgspec.Raw
    asked_at: float
    until: float
    effect: str = ""
    releases: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided: `approved`, `denied` or `expired`; of which digest, by whom, why and when."""

    decision: str
    digest: str
    who: str
    at: float
    why: str = ""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that was granted: by whom, when (seconds since the epoch), why, and of which digest."""

    id: str
    who: str
    at: float
    why: str
    digest: str


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A granted approval as the effect that it releases sees it."""

    id: str
    digest: str
    until: float
    releases: str
    text: str
    who: str


def digest_of(effect: str, artifact: bytes) -> str:
    """32 hex digits over the artifact's canonical JSON and the effect whose request it is ("" for a plain value)."""
    framed = struct.pack(">I", len(effect.encode())) + effect.encode() + artifact
    return blake2b(framed, digest_size=16, person=b"surefoot-approve").hexdigest()


def id_of(run_id: str, slot: str) -> str:
    """A short id that people can type; the same on every replay of that run. Frozen by a test."""
    framed = struct.pack(">I", len(run_id.encode())) + run_id.encode() + slot.encode()
    raw = int.from_bytes(blake2b(framed, digest_size=8, person=b"surefoot-ask-v1").digest(), "big")
    return "".join(_BASE32[raw >> 5 * place & 31] for place in range(_ID_CHARACTERS))


def message_name(approval_id: str) -> str:
    """The name under which the decision is sent to the run."""
    return f"approval:{approval_id}"


def shown(effect: str, artifact: bytes) -> str:
    """The artifact on one line, cut: for lists and errors."""
    text = artifact.decode(errors="replace")
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[:SHOWN_CHARACTERS]}… ({len(text):,} characters)"
    return f"{effect}({text})" if effect else text


# --- release ----------------------------------------------------------------------------------------------------


def release_slot(slot: str) -> str:
    """Where the journal keeps which approval released the effect at `slot`: beside it."""
    branch = branch_of(slot)
    name = f"release:{slot.rpartition('/')[2]}"
    return f"{branch}/{name}" if branch else name


def uses_in(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """(approval, slot of its use) of every use among these entries."""
    marks = (e for e in entries if e.kind == EntryKind.MARK and e.slot.rpartition("/")[2].startswith("release:"))
    return [(msgspec.json.decode(entry.value, type=str), entry.slot) for entry in marks]


def wanted_digests(names: Sequence[str], needs_approval: bool | str, arguments: bytes) -> list[str]:
    """What an approval may say to release this request: the request itself, or the value of the named argument."""
    wanted = [digest_of(name, arguments) for name in names]
    if isinstance(needs_approval, str):
        argument = msgspec.json.decode(arguments, type=dict[str, msgspec.Raw])[needs_approval]
        wanted.append(digest_of("", bytes(argument)))
    return wanted


class Grants:
    """The approvals that a run has been granted, and which effect used each. An approval is used once."""

    def __init__(self) -> None:
        """A run begins with none; replay grants them again in the order of the code."""
        self._granted: dict[str, Grant] = {}
        self._used: dict[str, str] = {}

    def add(self, grant: Grant) -> None:
        """The workflow has been told of this approval."""
        self._granted[grant.id] = grant

    def note_use(self, approval_id: str, slot: str) -> None:
        """The journal says that this approval was used there."""
        self._used.setdefault(approval_id, slot)

    def use(self, slot: str, names: Sequence[str], wanted: Sequence[str], asked: str, now: float) -> Grant:
        """The approval that releases the effect at `slot`, which uses it up; asking again is the same use.

        Raises NotApproved, and nothing is used.
        """
        why: list[str] = []
        for grant in self._granted.values():
            if grant.digest not in wanted:
                if grant.releases in names:
                    why.append(f"approved was {grant.text}, by {grant.who} (approval {grant.id})")
            elif grant.releases and grant.releases not in names:
                why.append(f"approval {grant.id} of it releases {grant.releases!r} and nothing else")
            elif now >= grant.until:
                why.append(f"its approval {grant.id} by {grant.who} has expired")
            elif self._used.setdefault(grant.id, slot) == slot:
                return grant
            else:
                why.append(f"its approval {grant.id} by {grant.who} was used already, by {self._used[grant.id]!r}")
        raise NotApproved(names[0], asked, *why)

    def give_back(self, slot: str) -> None:
        """Nothing was recorded at that slot after all."""
        for approval_id in [key for key, used in self._used.items() if used == slot]:
            del self._used[approval_id]
