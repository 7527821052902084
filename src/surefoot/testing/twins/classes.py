"""The nineteen classes of receivers: by what a request is recognised, and what its repeat meets.

A class is three questions: under what is this request remembered (`identity`), is that memory over (`is_over`), and
what does a repeat meet (`repeat`). Everything that classes share (windows, what is in flight, payloads, stored errors)
is asked by the engine, before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from .behaviour import Behaviour, Late, Said, Sort
from .messages import Answer, Json, Request, Thing


@dataclass(kw_only=True)
class Known:
    """What the receiver remembers of one request; `thing` is None while it runs, and when nothing was made."""

    request: Request
    since: float
    running: bool = True
    thing: Thing | None = None
    stored: Answer | None = None


def digest_of(payload: Json) -> str:
    """A short name for a payload."""
    return hashlib.blake2b(json.dumps(payload, sort_keys=True).encode(), digest_size=6).hexdigest()


class Rules:
    """No protection: nothing is recognised, and every request acts. The base of all classes."""

    shows = True
    """Whether a receiver of this class can be asked at all."""

    def identity(self, request: Request) -> Hashable | None:
        """Under what the receiver remembers this request; None: not at all."""
        return None

    def is_over(self, known: Known, now: float, behaviour: Behaviour) -> bool:
        """Whether the receiver no longer recognises what it once knew."""
        return now - known.since > behaviour.window_seconds

    def unknown(self, request: Request) -> Answer | None:
        """What a request meets that is not recognised; None: it acts."""
        return None

    def repeat(self, known: Known, request: Request) -> Answer:
        """What a recognised repeat meets; the thing is the one that was made."""
        return Answer(said=Said.REPLAYED, thing=known.thing, replayed=True)

    def writes_again(self, known: Known, request: Request) -> bool:
        """Whether the repeat changes the world all the same."""
        return False

    def acts(self, request: Request) -> str:
        """The ledger's word for what it does."""
        return "performed"

    def made(self, request: Request, number: int) -> Json:
        """What the answer tells about what was made, besides its id."""
        return {}


class LookupOnly(Rules):
    """Acts each time; a marker can be found again by asking."""


class NoPromise(Rules):
    """Acts each time, and cannot be asked."""

    shows = False


class LookupByEvent(Rules):
    """Acts each time; a later event tells (`Engine.events`)."""


class KeyReplay(Rules):
    """The first answer again, for a limited time."""

    def identity(self, request: Request) -> Hashable | None:
        """Its key, in its scope."""
        return (request.scope, request.operation, request.key) if request.key else None


class KeyRejectWithPointer(KeyReplay):
    """A used key is refused, and the refusal names what it made."""

    def repeat(self, known: Known, request: Request) -> Answer:
        """It landed, and this is where."""
        return Answer(said=Said.LANDED, thing=known.thing, text="this key was used, and made what is named here")


class KeyReject(KeyReplay):
    """A used key is refused, and that is all."""

    def repeat(self, known: Known, request: Request) -> Answer:
        """No word about what became of it."""
        return Answer(said=Said.SPENT, text="this key was used")


class NaturalKey(KeyReplay):
    """A name that the caller picks is unique while the thing exists."""

    def is_over(self, known: Known, now: float, behaviour: Behaviour) -> bool:
        """Once the thing is gone, its name is free."""
        return known.thing is not None and not known.thing.open

    def repeat(self, known: Known, request: Request) -> Answer:
        """It exists; whose it is, the caller has to compare."""
        return Answer(said=Said.EXISTS, thing=known.thing, text="it exists already")


class Conditional(NaturalKey):
    """A precondition decides, here "must not exist"."""


class Upsert(NaturalKey):
    """Create or update: a repeat writes the same record again."""

    def repeat(self, known: Known, request: Request) -> Answer:
        """The record, as it is now."""
        return Answer(said=Said.REPLAYED, thing=known.thing)

    def writes_again(self, known: Known, request: Request) -> bool:
        """Another content overwrites the record."""
        return known.request.payload != request.payload


class StateKey(KeyReplay):
    """The key protects while the thing is open; `window_seconds` after it was made it closes by itself."""

    def is_over(self, known: Known, now: float, behaviour: Behaviour) -> bool:
        """Once it is closed, the same key opens a new one."""
        closed = known.thing is not None and not known.thing.open
        return closed or now - known.since > behaviour.window_seconds

    def repeat(self, known: Known, request: Request) -> Answer:
        """Merged into what is open."""
        return Answer(said=Said.REPLAYED, thing=known.thing)


class SilentDropWindow(KeyReplay):
    """Inside the window a repeat is accepted and dropped, without any sign of it. Without a key the content is one."""

    def identity(self, request: Request) -> Hashable | None:
        """Its key, else its content."""
        return (request.scope, request.operation, request.key or digest_of(request.payload))

    def repeat(self, known: Known, request: Request) -> Answer:
        """A success like any other."""
        return Answer(said=Said.DROPPED, thing=known.thing)


class HeuristicWindow(Rules):
    """Within seconds the same content is taken for a duplicate."""

    def identity(self, request: Request) -> Hashable | None:
        """Its content: a key says nothing here."""
        return (request.scope, request.operation, digest_of(request.payload))

    def repeat(self, known: Known, request: Request) -> Answer:
        """Refused as a duplicate of something that is not named."""
        return Answer(said=Said.LANDED, text="this looks like a duplicate")


class TwoStepCommit(KeyReplay):
    """A request without a key prepares and gets an id; a request under that id commits it, once."""

    def identity(self, request: Request) -> Hashable | None:
        """Only a commit is recognised, by the id that was prepared."""
        return (request.scope, request.key) if request.key else None

    def is_over(self, known: Known, now: float, behaviour: Behaviour) -> bool:
        """What was committed stays so."""
        return False

    def acts(self, request: Request) -> str:
        """Preparing changes nothing that counts."""
        return "performed" if request.key else "prepared"

    def made(self, request: Request, number: int) -> Json:
        """Whether it is a draft yet."""
        return {"draft": not request.key}

    def repeat(self, known: Known, request: Request) -> Answer:
        """The draft is gone: sent, or thrown away."""
        return Answer(said=Said.EXISTS, text=f"there is no draft {request.key} any more")


class MonotonicSequence(Rules):
    """Only a number above its producer's last one acts; the rest is confirmed and dropped."""

    def identity(self, request: Request) -> Hashable | None:
        """Producer and number; the producer is the marker."""
        return (request.scope, request.marker, int(request.key)) if request.key else None

    def repeat(self, known: Known, request: Request) -> Answer:
        """Confirmed, whether it was this one or not."""
        return Answer(said=Said.DROPPED, thing=known.thing)


class SessionScoped(KeyReplay):
    """Recognised inside the client's session, which a restart ends."""

    def identity(self, request: Request) -> Hashable | None:
        """The key within the session."""
        return (request.session, request.scope, request.key) if request.key and request.session else None


class SingleUseSecret(Rules):
    """A token is spent by its use; within the grace (`window_seconds`) it gives the same successor again."""

    shows = False

    def __init__(self) -> None:
        """The tokens that were issued, and their families that were revoked."""
        self.issued: dict[str, int] = {}
        self.used: dict[str, str] = {}
        self.revoked: set[int] = set()

    def issue(self, number: int, family: int = 0) -> str:
        """A new token; of a new family unless one is given."""
        token = f"secret-{number}"
        self.issued[token] = family or number
        return token

    def identity(self, request: Request) -> Hashable | None:
        """The token itself."""
        return (request.scope, request.key)

    def unknown(self, request: Request) -> Answer | None:
        """Only what was issued, and not revoked, may be used."""
        if self.issued.get(request.key, -1) in ({-1} | self.revoked):
            return Answer(said=Said.SPENT, text="this token is not valid")
        return None

    def is_over(self, known: Known, now: float, behaviour: Behaviour) -> bool:
        """Never forgotten: a late use is told apart from a first one."""
        return False

    def is_spent(self, known: Known, now: float, behaviour: Behaviour) -> bool:
        """After the grace, or once the successor is in use; reuse then revokes the family where that is the rule."""
        token = known.request.key
        spent = now - known.since > behaviour.window_seconds or self.used.get(token, "") in self.used
        if spent and behaviour.late is Late.FAMILY_REVOKED:
            self.revoked.add(self.issued[token])
        return spent or self.issued[token] in self.revoked

    def made(self, request: Request, number: int) -> Json:
        """The successor."""
        successor = self.issue(number, self.issued[request.key])
        self.used[request.key] = successor
        return {"access_token": f"access-{number}", "refresh_token": successor}


class RotatingReusableSecret(SingleUseSecret):
    """A new token comes with each use, and the old one stays valid."""

    def is_spent(self, known: Known, now: float, behaviour: Behaviour) -> bool:
        """Only by its own end."""
        return now - known.since > behaviour.window_seconds


class ReusableSecret(RotatingReusableSecret):
    """The same token again and again; each use gives another access token."""

    def made(self, request: Request, number: int) -> Json:
        """No new secret."""
        return {"access_token": f"access-{number}"}


RULES: Mapping[Sort, type[Rules]] = {
    Sort.KEY_REPLAY: KeyReplay,
    Sort.KEY_REJECT_WITH_POINTER: KeyRejectWithPointer,
    Sort.KEY_REJECT: KeyReject,
    Sort.NATURAL_KEY: NaturalKey,
    Sort.UPSERT: Upsert,
    Sort.CONDITIONAL: Conditional,
    Sort.STATE_KEY: StateKey,
    Sort.SILENT_DROP_WINDOW: SilentDropWindow,
    Sort.HEURISTIC_WINDOW: HeuristicWindow,
    Sort.TWO_STEP_COMMIT: TwoStepCommit,
    Sort.MONOTONIC_SEQUENCE: MonotonicSequence,
    Sort.SESSION_SCOPED: SessionScoped,
    Sort.LOOKUP_ONLY: LookupOnly,
    Sort.LOOKUP_BY_EVENT: LookupByEvent,
    Sort.NONE: NoPromise,
    Sort.SINGLE_USE_SECRET: SingleUseSecret,
    Sort.ROTATING_REUSABLE_SECRET: RotatingReusableSecret,
    Sort.REUSABLE_SECRET: ReusableSecret,
}
"""Sort -> its rules. `mixed` is not here: such a receiver names the class of each operation."""
