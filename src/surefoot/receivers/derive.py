"""From the facts to the contract: one pure function, the same for our catalog and for what a user defines.

The kind follows from the class and from what is right in doubt; every number follows from a documented one and a
margin. Whatever is unknown is worth nothing here.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from ..core.contract import REFUSING_CODES, Answers, Bound, Code, Contract, Kind, Margins, Meaning, Place, answers
from ..core.errors import UsageError
from .fit import Shape, fit_key
from .model import Answer, Lookup, Receiver, Token
from .words import Class, Do, KeyPlace, KeyShape, Known, Late, LookupKind, TokenMode

STAYS = (Class.NATURAL_KEY, Class.UPSERT, Class.CONDITIONAL)
"""Classes whose guard is the object itself: as long as it cannot go away by time, a repeat is harmless for ever."""

TOKEN_MARGINS = Margins(safety_seconds=0.0, clock_skew_seconds=0.0, short_window_seconds=0.0)
PLACES = {place.value: place for place in Place}


def contract_of(receiver: Receiver) -> Contract:
    """The contract of a receiver's one operation; UsageError for a prepare-and-commit pair, which has two."""
    if receiver.class_ is Class.TWO_STEP_COMMIT:
        raise UsageError(
            f"receiver {receiver.id!r} is a prepare-and-commit pair and has two contracts: use "
            f"receivers.get({receiver.id!r}).prepare for the effect that prepares and .commit for the one that commits"
        )
    kind = kind_of(receiver)
    window, bound = _window(receiver)
    shape = fit_key(receiver.key, receiver.id) if has_key(receiver) else Shape()
    lookup = lookup_of(receiver)
    is_keyed = kind is Kind.KEYED
    if receiver.token is not None:
        return _contract_of_token(receiver, kind, window, bound)
    return Contract(
        kind=kind,
        receiver=receiver.id,
        window_seconds=window if is_keyed else 0.0,
        bound=bound if is_keyed else Bound.EXACT,
        margins=receiver.margins,
        lag_seconds=0.0 if kind is Kind.OPAQUE else lag_of(receiver, lookup),
        asks_by=lookup.by if lookup is not None and kind is not Kind.OPAQUE else "",
        absence=kind is Kind.OPAQUE or proves_absence(receiver, lookup),
        place=_place(receiver),
        key_name=receiver.key.name if _place(receiver) is not Place.NONE else "",
        quoted=receiver.key.quoted,
        shape=shape.shape,
        length=shape.length,
        prefix=shape.prefix,
        answers=answers_of(_all_answers(receiver)),
        code_at=receiver.code_at,
        stores_refusals=receiver.replay.refusals is Known.YES and not any(map(_may_look_refused, receiver.answers)),
        at_least_once=receiver.at_least_once,
        owned=receiver.owned,
    )


def _contract_of_token(receiver: Receiver, kind: Kind, window: float, bound: Bound) -> Contract:
    """The old refresh token is the key. The provider counts from when it acted, so half of its grace is relied on."""
    is_keyed = kind is Kind.KEYED
    return Contract(
        kind=kind,
        receiver=receiver.id,
        window_seconds=window if is_keyed else 0.0,
        bound=bound if is_keyed else Bound.EXACT,
        margins=TOKEN_MARGINS if receiver.margins == Margins() else receiver.margins,
        place=Place.NONE,
        key_name="",
        answers=Answers(refused=()),
        code_at=receiver.code_at,
    )


def _all_answers(receiver: Receiver) -> tuple[Answer, ...]:
    if receiver.action.after_5xx is not Do.LOOKUP_FIRST:
        return receiver.answers
    # a 5xx is not stored, so the same key may run again: only asking helps
    return (*receiver.answers, Answer(means=Meaning.SPENT, status=(500, 502, 503, 504)))


def prepare_of(receiver: Receiver) -> Contract:
    """The harmless half: asked for after a crash. An orphan costs nothing, so an empty answer may be believed."""
    step = _half(receiver, "prepare").prepares
    assert step is not None
    return Contract(
        kind=Kind.LOOKUP,
        receiver=receiver.id,
        margins=receiver.margins,
        lag_seconds=lag_of(receiver, step.lookup),
        asks_by=step.lookup.by if step.lookup else "",
        place=Place.NONE,
        key_name="",
        answers=answers_of(step.answers),
    )


def commit_of(receiver: Receiver) -> Contract:
    """The half that counts: by an id that is committed once, so a repeat does no harm and its answer tells."""
    step = _half(receiver, "commit").commits
    assert step is not None
    return Contract(
        kind=Kind.NATURAL,
        receiver=receiver.id,
        margins=receiver.margins,
        lag_seconds=lag_of(receiver, step.lookup),
        asks_by=step.lookup.by if step.lookup else "",
        absence=step.lookup is not None and step.lookup.absence,
        place=Place.NONE,
        key_name="",
        answers=answers_of(step.answers),
    )


def _half(receiver: Receiver, which: str) -> Receiver:
    if receiver.class_ is not Class.TWO_STEP_COMMIT:
        raise UsageError(
            f"receiver {receiver.id!r} is no prepare-and-commit pair ({receiver.class_}), so it has no .{which}; "
            "use .contract"
        )
    return receiver


def kind_of(receiver: Receiver) -> Kind:
    """Which of the five promises it is."""
    if receiver.at_least_once:
        return Kind.OPAQUE
    if receiver.consumer_drops_repeats:
        return Kind.NATURAL
    if receiver.token is not None:
        return _kind_of_token(receiver.token)
    match receiver.action.within:
        case Do.RESEND:
            stays = receiver.class_ in STAYS and receiver.window.bound is Bound.FOR_EVER
            return Kind.NATURAL if stays or receiver.class_ is Class.NONE else Kind.KEYED
        case Do.LOOKUP_FIRST | Do.LOOKUP_THEN_RESEND | Do.LOOKUP_THEN_PARK:
            return Kind.LOOKUP
        case Do.WAIT_FOR_EVENT:
            return Kind.OPAQUE if receiver.action.past is Do.PARK else Kind.LOOKUP
        case Do.RESEND_IF_CONSUMER_DROPS_REPEATS | Do.CANCEL_OR_PARK | Do.PARK | Do.NEW_INTENT:
            return Kind.OPAQUE
        case _:
            assert_never(receiver.action.within)


def _kind_of_token(token: Token) -> Kind:
    match token.mode:
        case TokenMode.REUSABLE | TokenMode.ROTATING_REUSABLE:
            return Kind.NATURAL
        case TokenMode.GRACE:
            return Kind.KEYED if token.grace_seconds else Kind.OPAQUE
        case TokenMode.STRICT:
            return Kind.OPAQUE
        case _:
            assert_never(token.mode)


def has_key(receiver: Receiver) -> bool:
    """True if a key of ours goes along; a `given` one comes with the arguments instead."""
    return receiver.key.place is not KeyPlace.NONE and receiver.key.shape is not KeyShape.GIVEN


def _place(receiver: Receiver) -> Place:
    return PLACES.get(receiver.key.place.value, Place.NONE) if has_key(receiver) else Place.NONE


def _window(receiver: Receiver) -> tuple[float, Bound]:
    if receiver.token is not None:
        grace = receiver.token.grace_seconds
        return (grace, Bound.EXACT) if grace else (0.0, Bound.UNKNOWN)
    window = receiver.window
    expires = any(answer.means is Meaning.EXPIRED for answer in receiver.answers)
    if window.bound is Bound.FOR_EVER or (window.late is Late.REJECTED and expires):
        return 0.0, Bound.FOR_EVER  # a late repeat is told from a first one, so it never acts a second time
    if window.seconds is None:
        return 0.0, Bound.STATE if window.bound is Bound.STATE else Bound.UNKNOWN
    return window.seconds, window.bound


def lookup_of(receiver: Receiver) -> Lookup | None:
    """The lookup that is relied on: the chosen one, else the first that is no event, else the first."""
    if receiver.asks:
        return next((lookup for lookup in receiver.lookups if lookup.by == receiver.asks), None)
    asked = [lookup for lookup in receiver.lookups if lookup.kind is not LookupKind.EVENT]
    return next(iter(asked or receiver.lookups), None)


def lag_of(receiver: Receiver, lookup: Lookup | None) -> float:
    """How long to wait until the lookup shows what was accepted, in seconds."""
    margins = receiver.lookup_margins
    if lookup is not None and lookup.lag_seconds is not None:
        return max(lookup.lag_seconds * margins.documented_multiplier, margins.floor_seconds)
    match lookup.kind if lookup else LookupKind.LIST:
        case LookupKind.GET | LookupKind.LIST:
            return margins.list_seconds
        case LookupKind.SEARCH:
            return margins.search_seconds
        case LookupKind.EVENT:
            return margins.event_seconds


def proves_absence(receiver: Receiver, lookup: Lookup | None) -> bool:
    """True if an empty answer means that it did not happen: the lookup shows all, and the facts allow to act on it."""
    believed = receiver.action.past in (Do.LOOKUP_THEN_RESEND, Do.LOOKUP_FIRST, Do.RESEND)
    return believed and lookup is not None and lookup.absence


def is_ambiguous(answer: Answer) -> bool:
    """True if only a status tells it that also refuses whatever is wrong with a request, such as 400.

    Such a status stays a refusal: right for a first try, and after an unresolved one a refusal proves nothing anyway.
    """
    about_the_key = answer.means not in (Meaning.REFUSED, Meaning.NOT_PROCESSED, Meaning.IN_FLIGHT)
    return about_the_key and not answer.codes and bool(set(answer.status) & set(REFUSING_CODES))


def _may_look_refused(answer: Answer) -> bool:
    """True if a client that reads the status alone would take for a refusal what says nothing of the kind."""
    says_nothing = answer.means not in (Meaning.REFUSED, Meaning.NOT_PROCESSED, Meaning.CHANGED_PAYLOAD)
    return says_nothing and bool(set(answer.status) & set(REFUSING_CODES) or not answer.status)


def codes_of(answer: Answer) -> tuple[Code, ...]:
    """What the answer is known by: the codes in its body, else its status. A code of digits comes as number, too."""
    if not answer.codes:
        return () if is_ambiguous(answer) else answer.status
    numbers = [int(code) for code in answer.codes if code.isdecimal()]
    return (*answer.codes, *numbers)


def answers_of(found: tuple[Answer, ...]) -> Answers:
    """The answers as the contract keeps them, in one order; UsageError for a code with two meanings."""
    named: dict[str, list[Code]] = {meaning.value: [] for meaning in Meaning}
    for answer in found:
        named[answer.means.value] += codes_of(answer)
    refused = named.pop("refused")
    usual = answers(**named)
    made = answers(**named, refused=(*usual.refused, *refused)) if refused else usual
    # 704 and "704" sort alike, and a stored contract must not depend on which of them a set gave first
    sorted_codes = {
        name: tuple(sorted(getattr(made, name), key=lambda code: (str(code), repr(code)))) for name in Meaning
    }
    changes = {name: codes for name, codes in sorted_codes.items() if codes != getattr(made, name)}
    return replace(made, **changes) if changes else made
