"""Who may run a request, and what its answer changes: pure, so that no two databases can disagree about it.

A claim is one call of one endpoint under one key. `MOVES` holds every legal move; what is absent is an error. Doubt
leaves only by an answer, by a person, or, for a transactional handler, by running it again: its change and its result
commit in one transaction, so the same change cannot commit twice.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..core.errors import UsageError

KEY_CHARS_MAX = 255
SCOPE_CHARS_MAX = 200


class Standing(StrEnum):
    """How a claim stands."""

    RUNNING = "running"
    RELEASED = "released"
    IN_DOUBT = "in_doubt"
    ANSWERED = "answered"


class Move(StrEnum):
    """What can happen to a claim."""

    TAKE = "take"
    ANSWER = "answer"
    RELEASE = "release"
    LOSE = "lose"


MOVES: dict[tuple[Standing, Move], Standing] = {
    (Standing.RUNNING, Move.TAKE): Standing.RUNNING,  # its owner is gone, and the handler is transactional
    (Standing.RUNNING, Move.ANSWER): Standing.ANSWERED,
    (Standing.RUNNING, Move.RELEASE): Standing.RELEASED,
    (Standing.RUNNING, Move.LOSE): Standing.IN_DOUBT,
    (Standing.RELEASED, Move.TAKE): Standing.RUNNING,
    (Standing.RELEASED, Move.ANSWER): Standing.ANSWERED,  # late: somebody had said that it did not happen
    (Standing.IN_DOUBT, Move.TAKE): Standing.RUNNING,  # transactional after all
    (Standing.IN_DOUBT, Move.ANSWER): Standing.ANSWERED,  # late, or a person's word
    (Standing.IN_DOUBT, Move.RELEASE): Standing.RELEASED,
}


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as its row holds it. Instants in seconds since the epoch; `lease_until` on the store's lease clock.

    `stamp` is the fence: a new one with each taking, so that a late writer's row no longer matches. `transactional`
    says what the handler of this attempt was. `result` is the stored answer, when there is one.
    """

    scope: str
    key: str
    digest: str
    standing: Standing
    attempts: int
    transactional: bool
    stamp: int
    owner: int
    boot: str
    lease_until: float
    began_at: float
    expires_at: float | None
    result: str | None = None


class View(NamedTuple):
    """What the asker knows while it decides: the time, and whether the claim's owner is gone for certain, or itself."""

    boot: str
    lease_now: float
    at: float
    owner_is_gone: bool = False
    runs_here: bool = False


class Run(NamedTuple):
    """Run the handler under this claim."""

    claim: Claim


class Replay(NamedTuple):
    """The stored answer."""

    claim: Claim


class Busy(NamedTuple):
    """Somebody runs it right now."""

    claim: Claim


class Reused(NamedTuple):
    """The key belongs to another request."""

    claim: Claim


class Doubt(NamedTuple):
    """The first attempt ended without an answer; only a person can tell whether it happened."""

    claim: Claim


Verdict = Run | Replay | Busy | Reused | Doubt


def apply(claim: Claim, move: Move, **changes: object) -> Claim:
    """The claim after a move; UsageError for one that is not in the table."""
    after = MOVES.get((claim.standing, move))
    if after is None:
        raise UsageError(f"a claim that is {claim.standing} cannot {move}; key {claim.key!r} ({claim.scope})")
    return replace(claim, standing=after, **changes)


def decide(found: Claim, asked: Claim, view: View) -> Verdict:
    """What a request may do that met an earlier claim. `asked` is the claim it would have made.

    The claim inside the verdict is the one to save; it is `found` itself when nothing changes.
    """
    if has_expired(found, view.at):
        return Run(asked)
    if found.digest != asked.digest:
        return Reused(found)
    if found.standing is Standing.ANSWERED:
        return Replay(found)
    if found.standing is Standing.RELEASED or (found.standing is Standing.IN_DOUBT and _may_repeat(found, asked)):
        return Run(_taken(found, asked))
    if found.standing is Standing.IN_DOUBT:
        return Doubt(found)
    if found.stamp == asked.stamp:
        return Run(found)  # our own claim, whose commit answered nothing
    if is_live(found, view):
        return Busy(found)
    return Run(_taken(found, asked)) if _may_repeat(found, asked) else Doubt(apply(found, Move.LOSE))


def _may_repeat(found: Claim, asked: Claim) -> bool:
    return found.transactional and asked.transactional


def _taken(found: Claim, asked: Claim) -> Claim:
    return apply(
        found,
        Move.TAKE,
        attempts=found.attempts + 1,
        transactional=asked.transactional,
        stamp=asked.stamp,
        owner=asked.owner,
        boot=asked.boot,
        lease_until=asked.lease_until,
        expires_at=asked.expires_at,
    )


def has_expired(claim: Claim, at: float) -> bool:
    """True once a settled claim may be forgotten. One that runs or is in doubt never expires."""
    settled = claim.standing in (Standing.ANSWERED, Standing.RELEASED)
    return settled and claim.expires_at is not None and claim.expires_at <= at


def is_live(claim: Claim, view: View) -> bool:
    """True while its owner may still be running the handler."""
    if claim.standing is not Standing.RUNNING or view.owner_is_gone or claim.boot != view.boot:
        return False
    return view.runs_here or claim.lease_until > view.lease_now


class Ending(NamedTuple):
    """How a run ended: answered with `result`; certainly nothing done (`RELEASE`); or nobody knows (`LOSE`).

    With `forget` a first attempt leaves no trace. `from_once` says that the answer was given after `once` had told what
    is committed.
    """

    claim: Claim
    move: Move
    result: str | None = None
    expires_seconds: float | None = None
    forget: bool = False
    from_once: bool = False


def needs_a_person(claim: Claim, view: View) -> bool:
    """True if only a person can tell; a lost run of a transactional handler is settled by the next request."""
    lost = claim.standing is Standing.RUNNING and not claim.transactional and not is_live(claim, view)
    return lost or claim.standing is Standing.IN_DOUBT


def end(found: Claim | None, ending: Ending, at: float) -> Claim | None:
    """What the end of a run changes: the claim to save, or None when the row is somebody else's by now.

    An answer under our own stamp counts, however late: it is the truth. So does the answer of any run of a
    transactional handler that asked `once`, since all of those got their result from the same row.
    """
    mine, move, result = ending.claim, ending.move, ending.result
    if found is None or found.standing is Standing.ANSWERED or found.digest != mine.digest:
        return None
    same_result = mine.transactional and found.transactional and ending.from_once
    if found.stamp != mine.stamp and not (move is Move.ANSWER and same_result):
        return None
    expires_at = None if ending.expires_seconds is None else at + ending.expires_seconds
    if (found.standing, move) not in MOVES:
        return None
    return apply(found, move, result=result, expires_at=expires_at)


def settle(found: Claim, result: str | None, expires_at: float | None, view: View) -> Claim:
    """What a person's word changes: happened, with this answer; or (`result=None`) did not happen."""
    if found.standing is Standing.ANSWERED:
        raise UsageError(f"key {found.key!r} ({found.scope}) has its answer; there is nothing to resolve")
    if is_live(found, view):
        raise UsageError(
            f"key {found.key!r} ({found.scope}) is still running; wait for its end, or end that process: "
            "nobody can tell yet what it will do"
        )
    if found.standing is Standing.RUNNING:
        found = apply(found, Move.LOSE)
    if result is not None:
        return apply(found, Move.ANSWER, result=result, expires_at=expires_at)
    return found if found.standing is Standing.RELEASED else apply(found, Move.RELEASE, expires_at=expires_at)


def check_key(key: object) -> str:
    """The key, or UsageError: 1 to 255 printable characters."""
    if not isinstance(key, str):
        raise UsageError(f"a key must be a string, found {type(key).__name__} ({key!r})")
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise UsageError(f"a key must have 1 to {KEY_CHARS_MAX} characters, found {len(key)}")
    return _printable(key, "a key")


def check_scope(scope: object) -> str:
    """The scope, or UsageError: at most 200 printable characters."""
    if not isinstance(scope, str):
        raise UsageError(f"scope= must be a string, found {type(scope).__name__} ({scope!r})")
    if len(scope) > SCOPE_CHARS_MAX:
        raise UsageError(f"scope= must have at most {SCOPE_CHARS_MAX} characters, found {len(scope)}")
    return _printable(scope, "scope=")


def _printable(text: str, what: str) -> str:
    bad = next((c for c in text if ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000), None)
    if bad is not None:
        raise UsageError(f"{what} must be printable text; {text!r} holds {bad!r}")
    return text
