"""What an engine gets in place of a result: the run stands still, and why, as a value that the engine can keep.

It is plain JSON on its way through an engine, so that any of its converters carries it. Where to reach whoever waits
is left with the run as a message (`ADDRESS`), since the process that parked it may be gone when somebody decides.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ..core.effect import Status
from ..core.errors import RunEnded
from ..core.outcome import InDoubt
from ..core.run import Run
from ..runtime.app import Surefoot

ADDRESS = "surefoot.inside"
"""The name of the messages to a run that say who waits for it."""
ID_CHARACTERS_MAX = 200
_DIGEST_BYTES = 12


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """One effect that only a person can tell about: its key, its name, why, and the command that decides it."""

    effect: str
    name: str
    reason: str
    decide: str


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A run that cannot go on by itself. `until`: from when on it may, by time alone (0: not by time)."""

    run: str
    reason: str
    doubts: tuple[Doubt, ...] = ()
    until: float = 0.0

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return msgspec.to_builtins(self)

    @classmethod
    def read(cls, plain: Any) -> Parked:
        """From what `plain` gave; raises msgspec.ValidationError for anything else."""
        return msgspec.convert(plain, cls)


def parked_of(sf: Surefoot, run_id: str, reason: str) -> Parked:
    """What the store says of a run that waits."""
    run = sf.store.find_run(run_id)
    doubts = [
        InDoubt(effect=effect.key, name=effect.name, run=run_id, reason=effect.reason)
        for effect in sf.store.find_effects([Status.PARKED], run_id=run_id)
    ]
    return Parked(
        run=run_id,
        reason=reason,
        doubts=tuple(Doubt(effect=d.effect, name=d.name, reason=d.reason, decide=d.how()) for d in reversed(doubts)),
        until=run.wake_at if run is not None else 0.0,
    )


def run_id_of(*parts: str) -> str:
    """An id made of an engine's own: joined by slashes, and where that is too long, cut and made unique by a digest."""
    text = "/".join(parts)
    if len(text) <= ID_CHARACTERS_MAX:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{text[: ID_CHARACTERS_MAX - len(digest) - 1]}~{digest}"


def leave_address(sf: Surefoot, run_id: str, engine: str, address: dict[str, Any]) -> None:
    """Say, durably, who waits for this run; the same address twice is one message.

    Until it is durable nobody is told, so the engine must look again by itself now and then. Nothing is left with a run
    that somebody else has ended meanwhile; that look finds its result.
    """
    value = {"engine": engine, **address}
    digest = hashlib.blake2b(msgspec.json.encode(value, order="sorted"), digest_size=_DIGEST_BYTES).hexdigest()
    try:
        sf.signal(run_id, ADDRESS, value, message=f"{ADDRESS}:{digest}")
    except RunEnded:
        return


def address_of(sf: Surefoot, run: Run) -> dict[str, Any] | None:
    """Who waits for this run, as was said last; None if nobody did."""
    if not run.mail:
        return None
    left = [mail for mail in sf.store.board.read_mail(run.id) if mail.name == ADDRESS]
    return msgspec.json.decode(left[-1].value) if left else None
