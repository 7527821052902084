"""What a receiver may not say about itself. Each rule names the field, what contradicts what, and the way out.

The catalog passes through the same rules as what a user defines: a fact that contradicts another one is worse than a
missing one, because half of the code would believe it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date

from ..core.contract import Bound, Kind, Meaning
from ..core.errors import UsageError
from .derive import commit_of, contract_of, has_key, kind_of, lookup_of, prepare_of
from .fit import LETTERS
from .model import Receiver
from .words import SCOPE_NAMES, TOKENS, Charset, Class, Do, KeyPlace, KeyShape, LookupKind

GUARDED_BY_KEY = (
    Class.KEY_REPLAY,
    Class.KEY_REJECT,
    Class.KEY_REJECT_WITH_POINTER,
    Class.STATE_KEY,
    Class.SILENT_DROP_WINDOW,
    Class.MONOTONIC_SEQUENCE,
    Class.NATURAL_KEY,
    Class.UPSERT,
    Class.CONDITIONAL,
)
UNGUARDED = (Class.LOOKUP_ONLY, Class.LOOKUP_BY_EVENT, Class.NONE)
ASKS = (Do.LOOKUP_FIRST, Do.LOOKUP_THEN_RESEND, Do.LOOKUP_THEN_PARK)
Rule = Callable[[Receiver], Iterator[str]]
"""A receiver -> what is wrong with it, in words that begin with the field's name."""


def check(receiver: Receiver) -> Receiver:
    """This receiver; UsageError for the first thing in it that contradicts itself or cannot be kept."""
    for rule in RULES:
        for problem in rule(receiver):
            raise UsageError(f"receiver {receiver.id!r}: {problem}")
    if receiver.class_ is Class.TWO_STEP_COMMIT:
        prepare_of(receiver)
        commit_of(receiver)
    else:
        contract_of(receiver)
    return receiver


def _window(receiver: Receiver) -> Iterator[str]:
    window = receiver.window
    if window.seconds is not None and not 0 < window.seconds < float("inf"):
        yield f"window.seconds={window.seconds!r} must be a positive, finite number; leave it out when it is not known"
    if window.seconds is not None and window.bound is Bound.FOR_EVER:
        yield (
            f"window.seconds={window.seconds:g} says that the guard ends and window.bound='for_ever' that it does not; "
            "leave one of them out"
        )
    if window.seconds is not None and receiver.class_ in UNGUARDED:
        yield (
            f"window.seconds={window.seconds:g} needs something that guards, and class={receiver.class_.value!r} "
            "guards nothing; leave the window out, or name the class that guards"
        )


def _key(receiver: Receiver) -> Iterator[str]:
    key = receiver.key
    if receiver.class_ in GUARDED_BY_KEY and receiver.action.within is Do.RESEND and key.place is KeyPlace.NONE:
        yield (
            f"key.place is missing: class={receiver.class_.value!r} guards by a key, so say where it goes, such as "
            'key=Key(place="header", name="Idempotency-Key")'
        )
    if key.quoted and key.place is not KeyPlace.HEADER:
        yield f"key.quoted counts for headers only, and key.place is {key.place.value!r}; leave quoted out"
    if key.min_length is not None and key.max_length is not None and key.min_length > key.max_length:
        yield f"key.min_length={key.min_length} is more than key.max_length={key.max_length}; look which one is wrong"
    if key.prefix and (key.shape in (KeyShape.NUMBER, KeyShape.SEQUENCE) or key.charset is Charset.DIGITS):
        yield f"key.prefix={key.prefix!r} cannot stand before a number; leave it out"
    strange = set(key.prefix) - set(LETTERS.get(key.charset, key.prefix))
    if strange:
        letters = "".join(sorted(strange))
        yield f"key.prefix={key.prefix!r} holds {letters!r}, which key.charset={key.charset.value!r} does not allow"
    if key.shape is KeyShape.SEQUENCE and receiver.class_ is not Class.MONOTONIC_SEQUENCE:
        yield "key.shape='sequence' belongs to class='monotonic_sequence'; a number that only grows names no intent"


def _scope(receiver: Receiver) -> Iterator[str]:
    for name in receiver.scope:
        if name not in SCOPE_NAMES:
            yield f"scope names {name!r}; it may hold {', '.join(SCOPE_NAMES)}. Say anything else in scope_text"


def _lookups(receiver: Receiver) -> Iterator[str]:
    seen: set[str] = set()
    for lookup in receiver.lookups:
        if lookup.by in seen:
            yield f"lookups name by={lookup.by!r} twice; asks= could not tell them apart, so give one another name"
        seen.add(lookup.by)
        if lookup.absence and lookup.kind in (LookupKind.SEARCH, LookupKind.EVENT):
            yield (
                f"lookups by={lookup.by!r} is kind={lookup.kind.value!r} and says absence=true; an index or an event "
                "that comes late never proves that something is not there. Leave absence out, or name a list or get"
            )
        if lookup.lag_seconds is not None and not 0 <= lookup.lag_seconds < float("inf"):
            yield f"lookups by={lookup.by!r}: lag_seconds={lookup.lag_seconds!r} must be 0 or more, or left out"
    if receiver.asks and lookup_of(receiver) is None:
        yield f"asks={receiver.asks!r} is no lookup; there is {', '.join(sorted(seen)) or 'none'}"
    if kind_of(receiver) is Kind.LOOKUP and not receiver.lookups:
        yield f"lookups are missing: action.within={receiver.action.within.value!r} asks, so name what can be asked"


def _action(receiver: Receiver) -> Iterator[str]:
    action, lookup = receiver.action, lookup_of(receiver)
    if action.past in ASKS and lookup is None and receiver.class_ is not Class.TWO_STEP_COMMIT:
        yield f"action.past={action.past.value!r} asks, and there are no lookups; name one, or use action.past='park'"
    if action.past is Do.LOOKUP_THEN_RESEND and lookup is not None and not lookup.absence:
        yield (
            f"action.past='lookup_then_resend' acts on an empty answer, and the lookup by {lookup.by!r} does not say "
            "absence=true; use 'lookup_then_park', or choose with asks= a lookup that shows everything at once"
        )
    if receiver.consumer_drops_repeats and receiver.at_least_once:
        yield "consumer_drops_repeats and at_least_once answer the same question; leave the second out"
    if receiver.owned and (kind_of(receiver) is not Kind.NATURAL or not has_key(receiver)):
        yield "owned says that the object's id is our key; that needs a natural key that we choose, so leave it out"


def _halves(receiver: Receiver) -> Iterator[str]:
    both = receiver.prepares is not None and receiver.commits is not None
    if (receiver.class_ is Class.TWO_STEP_COMMIT) != both:
        yield "prepares and commits belong to class='two_step_commit', and it needs both"
    if (receiver.class_ in TOKENS) != (receiver.token is not None):
        yield f"token belongs to the classes {', '.join(TOKENS)}, and they need it"


def _code_at(receiver: Receiver) -> Iterator[str]:
    for path in receiver.code_at:
        if not path or not all(path.split(".")):
            yield f"code_at holds {path!r}; write names with dots between, * for each member: 'errors.*.code'"


def _answers(receiver: Receiver) -> Iterator[str]:
    seen: dict[int | str, Meaning] = {}
    for answer in receiver.answers:
        if not answer.status and not answer.codes:
            yield f"answers: one that means {answer.means.value!r} has neither status nor codes, so nothing matches it"
        for code in answer.codes or answer.status:
            if seen.setdefault(code, answer.means) is not answer.means:
                yield (
                    f"answers give code {code!r} two meanings, {seen[code].value!r} and {answer.means.value!r}; name "
                    "it once, or tell the two apart by codes in the body"
                )


def _margins(receiver: Receiver) -> Iterator[str]:
    try:
        receiver.margins.check()
    except UsageError as error:
        yield f"margins: {error}"


def _marker(receiver: Receiver) -> Iterator[str]:
    if receiver.marker is not None and receiver.marker.place not in ("header", "body", "status"):
        yield f"marker.place={receiver.marker.place!r} must be header, body or status"


def _checked(receiver: Receiver) -> Iterator[str]:
    try:
        _ = receiver.checked and date.fromisoformat(receiver.checked)
    except ValueError:
        yield f"checked={receiver.checked!r} must be a date as 2026-11-30"


RULES: tuple[Rule, ...] = (
    _window,
    _key,
    _scope,
    _halves,
    _lookups,
    _action,
    _code_at,
    _answers,
    _margins,
    _marker,
    _checked,
)
