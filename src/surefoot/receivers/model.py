"""What one receiver does with repeats, as data: one `Receiver` per service and group of operations.

Every fact that decides something is typed; a short text of ours may stand beside it. What no source says is `unknown`
(or None for a number) and is never relied on: a guess here would become a second charge somewhere else.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..core.contract import Bound, Contract, Margins, Meaning
from .words import (
    Category,
    Charset,
    Class,
    Do,
    InFlight,
    KeyPlace,
    KeyShape,
    Known,
    Late,
    Level,
    LookupKind,
    Stakes,
    TokenMode,
)


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of everything here: strict, so that a misspelled field is an error and not a fact that nobody reads."""


class Key(Fact, frozen=True):
    """The key. `also` names other places it may go instead; lengths are in characters, None where nothing is said."""

    place: KeyPlace = KeyPlace.NONE
    name: str = ""
    also: tuple[str, ...] = ()
    required: Known = Known.UNKNOWN
    shape: KeyShape = KeyShape.ANY
    min_length: int | None = None
    max_length: int | None = None
    charset: Charset = Charset.ANY
    prefix: str = ""
    quoted: bool = False
    text: str = ""


class Window(Fact, frozen=True):
    """How long a key protects, counted from the first request. `seconds` is None where no number is known."""

    seconds: float | None = None
    bound: Bound = Bound.UNKNOWN
    late: Late = Late.UNKNOWN
    text: str = ""


class Replay(Fact, frozen=True):
    """What is stored under a key and comes back: successes, refusals (4xx), errors (5xx)."""

    success: Known = Known.UNKNOWN
    refusals: Known = Known.UNKNOWN
    errors: Known = Known.UNKNOWN
    answers_with: str = ""
    text: str = ""


class Marker(Fact, frozen=True):
    """How a replayed answer is told from a first one: a `header`, a `body` field or a `status`, with its value."""

    place: str
    name: str = ""
    value: str = ""


class Answer(Fact, frozen=True):
    """What one answer means. `codes` stand in the body (see `Receiver.code_at`); without any, `status` alone tells.

    `ours` says how to tell whether what exists is ours; `then` what to do next.
    """

    means: Meaning
    status: tuple[int, ...] = ()
    codes: tuple[str, ...] = ()
    ours: str = ""
    then: str = ""


class Lookup(Fact, frozen=True):
    """One way to ask. `by` is the field in which we find our own mark; `lag_seconds` is None where not documented.

    `absence=True` says that an empty answer, given after the lag, proves that it is not there.
    """

    how: str
    by: str
    kind: LookupKind
    lag_seconds: float | None = None
    absence: bool = False
    text: str = ""


class Undo(Fact, frozen=True):
    """One way to take it back. `keyed`: whether the undoing call has a key of its own. `until`: its deadline."""

    call: str
    keyed: Known = Known.UNKNOWN
    until: str = ""


class Action(Fact, frozen=True):
    """What to do in doubt: within the window, past it, when the request changed, after a 5xx. `why`: an exception."""

    within: Do
    past: Do
    changed: Do = Do.PARK
    after_5xx: Do | None = None
    why: str = ""


class Variant(Fact, frozen=True):
    """What differs for one operation, or once an account setting is on; what is not said stays as it is."""

    text: str = ""
    class_: Class | None = msgspec.field(name="class", default=None)
    key: Key | None = None
    window: Window | None = None
    action: Action | None = None
    answers: tuple[Answer, ...] | None = None
    lookups: tuple[Lookup, ...] | None = None
    stakes: Stakes | None = None


class Setting(Variant, frozen=True):
    """A setting of the account that switches protection on or changes it. `default` is whether it is on unasked.

    `needed=True` says that everything said of this receiver holds only while it is on.
    """

    needed: bool = False
    default: Known = Known.UNKNOWN


class Step(Fact, frozen=True):
    """One half of a prepare-and-commit pair: the call, what a repeat of it does, how it is asked for."""

    call: str
    repeat: str = ""
    answers: tuple[Answer, ...] = ()
    lookup: Lookup | None = None


class Token(Fact, frozen=True):
    """What a refresh token does when it is used. `grace_seconds` is None where nothing is said, and then none is given.

    `revokes_family`: whether a second use revokes every token of the family. `one_at_a_time`: only one process may
    refresh. `refusals`: the codes that say that the token is spent.
    """

    mode: TokenMode
    grace_seconds: float | None = None
    revokes_family: Known = Known.UNKNOWN
    one_at_a_time: bool = True
    refusals: tuple[str, ...] = ("invalid_grant",)
    text: str = ""


class Source(Fact, frozen=True):
    """Where a fact was read, what kind of page that is, and the page's date as far as it has one."""

    ref: str
    kind: str = "docs"
    dated: str = "undated"
    text: str = ""


class Client(Fact, frozen=True):
    """How many requests one call of a client library sent when the answer was lost, with its defaults (measured).

    More than one without a guard means: switch its retries off, since one attempt has to be one request.
    """

    package: str
    version: str
    call: str
    closed: int
    reset: int
    status_500: int
    status_503: int
    guard: str = "none"


class LookupMargins(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long to wait until a lookup shows what was accepted, in seconds.

    A documented lag is multiplied and never taken below `floor_seconds`; without one the kind of the lookup decides.
    """

    documented_multiplier: float = 3.0
    floor_seconds: float = 10.0
    list_seconds: float = 30.0
    search_seconds: float = 300.0
    event_seconds: float = 900.0


class Receiver(Fact, frozen=True):
    """One service and one group of its operations. `contract` is what `@effect` stores; `with_` narrows it.

    `scope` names what a key is bound to: account, environment, region, endpoint, credential. `code_at` are the places
    in a JSON answer that hold the code. `marks` names the field that can carry our identity. The rest has docstrings of
    its own. Equal receivers derive equal contracts.
    """

    id: str
    name: str
    category: Category
    class_: Class = msgspec.field(name="class")
    action: Action
    stakes: Stakes
    operations: tuple[str, ...] = ()
    api_version: str = ""
    key: Key = Key()
    scope: tuple[str, ...] = ()
    scope_text: str = ""
    window: Window = Window()
    payload_compared: Known = Known.UNKNOWN
    payload_text: str = ""
    replay: Replay = Replay()
    marker: Marker | None = None
    in_flight: InFlight = InFlight.UNKNOWN
    in_flight_text: str = ""
    answers: tuple[Answer, ...] = ()
    code_at: tuple[str, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    marks: str = ""
    undo: tuple[Undo, ...] = ()
    variants: dict[str, Variant] = {}
    settings: dict[str, Setting] = {}
    prepares: Step | None = None
    commits: Step | None = None
    token: Token | None = None
    pitfalls: tuple[str, ...] = ()
    clients: tuple[Client, ...] = ()
    sources: tuple[Source, ...] = ()
    level: Level = Level.DECLARED
    level_text: str = ""
    checked: str = ""
    margins: Margins = Margins()
    lookup_margins: LookupMargins = LookupMargins()
    asks: str = ""
    consumer_drops_repeats: bool = False
    at_least_once: bool = False
    owned: bool = False

    @property
    def contract(self) -> Contract:
        """The contract that an effect stores; UsageError for one that has two, or none that is allowed."""
        from .derive import contract_of

        return contract_of(self)

    @property
    def prepare(self) -> Contract:
        """Of a prepare-and-commit pair the first half: harmless, and asked for after a crash."""
        from .derive import prepare_of

        return prepare_of(self)

    @property
    def commit(self) -> Contract:
        """Of a prepare-and-commit pair the second half: by an id that can be committed once."""
        from .derive import commit_of

        return commit_of(self)

    def with_(
        self,
        *,
        operation: str = "",
        setting: str | tuple[str, ...] = (),
        window: timedelta | float | None = None,
        scope: tuple[str, ...] | None = None,
        shape: str | None = None,
        stakes: str | None = None,
        asks: str = "",
        past: str | None = None,
        grace_seconds: timedelta | float | None = None,
        consumer_drops_repeats: bool = False,
        at_least_once: bool = False,
        owned: bool = False,
        margins: Margins | None = None,
        lookup_margins: LookupMargins | None = None,
        lookups: tuple[Lookup, ...] | None = None,
        answers: tuple[Answer, ...] | None = None,
        code_at: tuple[str, ...] | None = None,
        token: Token | None = None,
        checked: str = "",
    ) -> Receiver:
        """This receiver, narrowed by what its owner knows; UsageError for what contradicts the facts.

        `operation` and `setting` name entries of `variants` and `settings`: what differs for one operation, what a
        setting of the account switches on. `window` (a timedelta or seconds) is what you have set or been told.
        `stakes="reversible"` lets an unknown window count for 300 s. `asks` chooses the lookup by its field. `past`
        says what to do past the window. `consumer_drops_repeats=True`: whoever reads the message drops a second one.
        `at_least_once=True` accepts duplicates. `owned=True`: the object's id is our key, so whatever exists under it
        is ours. The others replace the fields of the same name.
        """
        from .narrow import narrow

        said = {
            "operation": operation,
            "setting": (setting,) if isinstance(setting, str) else setting,
            "window": window,
            "scope": scope,
            "shape": shape,
            "stakes": stakes,
            "asks": asks,
            "past": past,
            "grace_seconds": grace_seconds,
            "consumer_drops_repeats": consumer_drops_repeats,
            "at_least_once": at_least_once,
            "owned": owned,
            "margins": margins,
            "lookup_margins": lookup_margins,
            "lookups": lookups,
            "answers": answers,
            "code_at": code_at,
            "token": token,
            "checked": checked,
        }
        return narrow(self, {name: value for name, value in said.items() if _is_said(value)})


def _is_said(value: object) -> bool:
    return value is not None and value is not False and value not in ("", ())
