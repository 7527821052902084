"""Narrowing and defining: what an owner knows better than the catalog, said in the code. Contradictions are refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..core.contract import Bound, Kind
from ..core.errors import UsageError
from .check import GUARDED_BY_KEY, UNGUARDED, check
from .derive import kind_of
from .model import Action, Receiver, Variant, Window
from .words import TOKENS, Class, Do, KeyPlace, KeyShape, Stakes, TokenMode

REVERSIBLE_SECONDS = 300.0
"""What an unknown window is worth once the owner says that a duplicate can be taken back."""

STAYS = (Class.NATURAL_KEY, Class.UPSERT, Class.CONDITIONAL)
V = TypeVar("V", bound=Variant)


def narrow(receiver: Receiver, said: Mapping[str, Any]) -> Receiver:
    """The receiver with what was said in `with_`; UsageError for what contradicts it."""
    said = dict(said)
    for name in said.pop("setting", ()):
        receiver = _vary(receiver, _named(receiver, name, receiver.settings, "setting"))
    if operation := said.pop("operation", ""):
        receiver = _vary(receiver, _named(receiver, operation, receiver.variants, "operation"))
    if (window := said.pop("window", None)) is not None:
        receiver = _with_window(receiver, window)
    if (shape := said.pop("shape", None)) is not None:
        receiver = _with_shape(receiver, shape)
    if (stakes := said.pop("stakes", None)) is not None:
        receiver = _with_stakes(receiver, stakes)
    if (seconds := said.pop("grace_seconds", None)) is not None:
        receiver = _with_grace(receiver, seconds)
    if said.get("consumer_drops_repeats") and not _depends_on_consumer(receiver):
        raise UsageError(
            f"receiver {receiver.id!r}: consumer_drops_repeats says that whoever reads the message drops a second one; "
            f"{receiver.name} is not read by a consumer of yours. Use at_least_once=True to accept duplicates"
        )
    past = said.pop("past", None)
    receiver = _with_plain(receiver, said)
    if receiver.asks and kind_of(receiver) is Kind.OPAQUE and not receiver.token and not receiver.at_least_once:
        action = replace(receiver.action, within=Do.LOOKUP_THEN_PARK, past=Do.LOOKUP_THEN_PARK)
        receiver = replace(receiver, action=action)
    if past is not None:
        receiver = replace(receiver, action=replace(receiver.action, past=_word(receiver.id, "past", past, Do)))
    return check(receiver)


def build(id: str, facts: Mapping[str, Any]) -> Receiver:
    """A receiver from its fields; see `define`."""
    facts = {"class" if name == "class_" else name: value for name, value in facts.items()}
    for name in ("class", "stakes"):
        if name not in facts:
            raise UsageError(f"define({id!r}) needs {name}=; {_why_needed[name]} (docs/receivers.md helps to choose)")
    window = facts.get("window")
    if isinstance(window, timedelta | int | float):
        facts["window"] = Window(seconds=_seconds(id, window), bound=Bound.EXACT)
    whole = {"id": id, "name": id, "category": "standard", **facts}
    whole.setdefault("window", {"bound": "for_ever"} if whole["class"] in STAYS else {})
    whole.setdefault("action", _usual(whole))
    return check(_convert(whole, id))


_why_needed = {
    "class": "it says how the service treats a repeat",
    "stakes": "it says what a duplicate costs: money, message or reversible",
}


def _convert(facts: Mapping[str, Any], id: str) -> Receiver:
    try:
        return msgspec.convert(msgspec.to_builtins(dict(facts)), Receiver)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(
            f"receiver {id!r}: {error}; `surefoot.receivers.model` has the fields and their words"
        ) from None


def _usual(facts: Mapping[str, Any]) -> Any:
    """What is right in doubt for a class, as far as its own facts carry it."""
    lookups = msgspec.to_builtins(facts.get("lookups", ()))
    proves = any(isinstance(lookup, dict) and "absence" in lookup for lookup in lookups)
    asks = (Do.LOOKUP_THEN_RESEND if proves else Do.LOOKUP_THEN_PARK) if lookups else Do.PARK
    match facts["class"]:
        case Class.NATURAL_KEY | Class.UPSERT | Class.CONDITIONAL:
            return Action(within=Do.RESEND, past=asks if lookups else Do.RESEND)
        case Class.LOOKUP_ONLY | Class.HEURISTIC_WINDOW | Class.SESSION_SCOPED | Class.TWO_STEP_COMMIT | Class.MIXED:
            return Action(within=Do.LOOKUP_FIRST, past=asks)
        case Class.MONOTONIC_SEQUENCE:  # a later number makes a resend of an earlier one vanish
            return Action(
                within=Do.LOOKUP_THEN_PARK if lookups else Do.PARK, past=asks if not proves else Do.LOOKUP_THEN_PARK
            )
        case Class.LOOKUP_BY_EVENT:
            return Action(within=Do.WAIT_FOR_EVENT, past=Do.PARK)
        case Class.NONE:
            return Action(within=Do.PARK, past=Do.PARK)
        case _:
            return Action(within=Do.RESEND, past=asks)


def _named(receiver: Receiver, name: str, known: Mapping[str, V], what: str) -> V:
    found = known.get(name)
    if found is None:
        names = ", ".join(sorted(known)) or "none that differs from the rest"
        raise UsageError(f"receiver {receiver.id!r} has no {what} {name!r}; it has {names}")
    return found


def _vary(receiver: Receiver, variant: Variant) -> Receiver:
    changes = {
        name: value
        for name in ("class_", "key", "window", "action", "answers", "lookups", "stakes")
        if (value := getattr(variant, name)) is not None
    }
    return replace(receiver, **changes)


def _with_window(receiver: Receiver, said: timedelta | float) -> Receiver:
    seconds, old = _seconds(receiver.id, said), receiver.window
    if receiver.class_ in (*UNGUARDED, *TOKENS, Class.TWO_STEP_COMMIT) or receiver.key.place is KeyPlace.NONE:
        raise UsageError(
            f"receiver {receiver.id!r}: window={said!r} needs a key that is kept, and {receiver.name} keeps none "
            f"({receiver.class_}); leave it out"
        )
    if old.bound in (Bound.EXACT, Bound.AT_LEAST) and old.seconds is not None and seconds > old.seconds:
        raise UsageError(
            f"receiver {receiver.id!r}: window={seconds:g} s is longer than the documented {old.seconds:g} s; name the "
            "setting that makes it longer with setting=, or describe the receiver with receivers.define(...)"
        )
    action = receiver.action
    if receiver.class_ in GUARDED_BY_KEY and old.bound is Bound.UNKNOWN and action.within is Do.LOOKUP_FIRST:
        action = replace(action, within=Do.RESEND)
    return replace(receiver, action=action, window=replace(old, seconds=seconds, bound=Bound.EXACT))


def _with_shape(receiver: Receiver, said: str) -> Receiver:
    shape, old = _word(receiver.id, "shape", said, KeyShape), receiver.key.shape
    if old not in (KeyShape.ANY, KeyShape.UUID, shape):
        raise UsageError(
            f"receiver {receiver.id!r}: shape={shape.value!r} is not what its key has to be ({old.value}); leave it out"
        )
    return replace(receiver, key=replace(receiver.key, shape=shape))


def _with_stakes(receiver: Receiver, said: str) -> Receiver:
    stakes, margins = _word(receiver.id, "stakes", said, Stakes), receiver.margins
    if stakes is Stakes.REVERSIBLE and not margins.unknown_window_seconds:
        margins = replace(margins, unknown_window_seconds=REVERSIBLE_SECONDS)
    return replace(receiver, stakes=stakes, margins=margins)


def _with_grace(receiver: Receiver, said: timedelta | float) -> Receiver:
    token = receiver.token
    if token is None or token.mode not in (TokenMode.STRICT, TokenMode.GRACE):
        mode = "hands out no tokens" if token is None else f"has {token.mode} tokens, which need no grace"
        raise UsageError(f"receiver {receiver.id!r} {mode}; leave grace_seconds out")
    seconds = _seconds(receiver.id, said)
    return replace(receiver, token=replace(token, mode=TokenMode.GRACE, grace_seconds=seconds))


def _depends_on_consumer(receiver: Receiver) -> bool:
    return Do.RESEND_IF_CONSUMER_DROPS_REPEATS in (receiver.action.within, receiver.action.past)


def _with_plain(receiver: Receiver, said: Mapping[str, Any]) -> Receiver:
    if not said:
        return receiver
    fields = {"class" if name == "class_" else name: value for name, value in said.items()}
    made = _convert(
        {
            "id": "",
            "name": "",
            "category": "standard",
            "class": "none",
            "stakes": "money",
            "action": Action(within=Do.PARK, past=Do.PARK),
            **fields,
        },
        receiver.id,
    )
    return replace(receiver, **{name: getattr(made, name) for name in said})


def _word(id: str, field: str, said: Any, words: Any) -> Any:
    try:
        return words(said)
    except ValueError:
        raise UsageError(f"receiver {id!r}: {field}={said!r} must be one of {', '.join(words)}") from None


def _seconds(id: str, said: timedelta | float) -> float:
    seconds = said.total_seconds() if isinstance(said, timedelta) else float(said)
    if not 0 < seconds < float("inf"):
        raise UsageError(f"receiver {id!r}: {said!r} must be a positive, finite time (a timedelta or seconds)")
    return seconds
