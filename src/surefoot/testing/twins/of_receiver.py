"""From what the catalog says about a receiver to how its twin behaves. Pure.

What the catalog does not know, the twin has to do somehow: a window of a day, a repeat that acts again after it, a
second request that is refused while the first one runs, a lookup that shows after a moment. Say otherwise in
`Twin.of(receiver, window_seconds=0)`; Surefoot relies on none of it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...core.contract import Bound, Place
from ...receivers import get
from ...receivers.model import (
    Charset,
    Class,
    Key,
    KeyPlace,
    KeyShape,
    Known,
    LookupKind,
    Receiver,
    TokenMode,
)
from ...receivers.model import (
    InFlight as Meets,
)
from ...receivers.model import (
    Late as AfterWindow,
)
from .behaviour import Behaviour, InFlight, Late, Said, Sort

UNKNOWN_WINDOW_SECONDS = 86_400.0
UNKNOWN_LAG_SECONDS = {
    LookupKind.GET: 0.0,
    LookupKind.LIST: 2.0,
    LookupKind.SEARCH: 60.0,
    LookupKind.EVENT: 60.0,
}
IN_FLIGHT = {
    Meets.REJECTED: InFlight.REJECT,
    Meets.WAITS: InFlight.HOLD,
    Meets.ONE_WINS: InFlight.HOLD,
    Meets.BOTH_RUN: InFlight.BOTH,
    Meets.UNKNOWN: InFlight.REJECT,
}
CHARSETS = {
    Charset.ANY: "any",
    Charset.TOKEN: "word",
    Charset.DNS: "dns",
    Charset.ALPHANUMERIC: "base62",
    Charset.BASE32HEX: "base32",
    Charset.HEX: "hex",
    Charset.DIGITS: "number",
}
TOKEN_FIELD = "refresh_token"


def behaviour_of(receiver: Receiver) -> Behaviour:
    """How the twin of this receiver behaves."""
    key, token, marker = receiver.key, receiver.token, receiver.marker
    window, late = _window(receiver)
    shows, lag = _lookup(receiver)
    return Behaviour(
        name=receiver.id,
        operations=_operations(receiver),
        window_seconds=window,
        late=late,
        in_flight=InFlight.HOLD if token else IN_FLIGHT[receiver.in_flight],
        compares_payload=receiver.payload_compared is Known.YES,
        stores_refusals=receiver.replay.refusals is Known.YES,
        stores_errors=receiver.replay.errors is Known.YES,
        place=Place.BODY if token else place_of(key),
        key_name=TOKEN_FIELD if token else key.name or "key",
        key_required=key.required is Known.YES,
        shape=_shape(key),
        length_min=key.min_length or 1,
        length_max=key.max_length or 255,
        prefix=key.prefix,
        quoted=key.quoted,
        replay_marker=(marker.name, marker.value) if marker is not None and marker.place == "header" else None,
        shows=shows,
        lag_seconds=lag,
        codes=_codes(receiver),
    )


def behaviour_named(name: str, **lies: Any) -> Behaviour:
    """How the twin of the receiver of this name behaves; `lies` change it. Raises UsageError for an unknown name."""
    return replace(behaviour_of(get(name)), **lies)


def place_of(key: Key) -> Place:
    """Where the plain wire reads the key: what is no part of an HTTP request of its own is a field of the body."""
    match key.place:
        case KeyPlace.HEADER | KeyPlace.MAIL_HEADER | KeyPlace.QUERY | KeyPlace.PATH | KeyPlace.NONE:
            return Place(key.place)
        case _:
            return Place.BODY


def _shape(key: Key) -> str:
    match key.shape:
        case KeyShape.ANY:
            return CHARSETS[key.charset]
        case KeyShape.GIVEN:
            return "any"
        case _:
            return str(key.shape)


def _operations(receiver: Receiver) -> dict[str, Sort]:
    """`create`, and one for each variant; a mixed receiver has only those whose class is known, or its lookups'."""
    own = Sort.LOOKUP_ONLY if receiver.class_ is Class.MIXED else Sort(receiver.class_)
    named = {name: Sort(variant.class_) if variant.class_ else own for name, variant in receiver.variants.items()}
    return {"create": own, **{name: sort for name, sort in named.items() if sort is not Sort.MIXED}}


def _window(receiver: Receiver) -> tuple[float, Late]:
    token, window = receiver.token, receiver.window
    if token is not None:
        late = Late.FAMILY_REVOKED if token.revokes_family is Known.YES else Late.EXECUTES_AGAIN
        spent = token.mode in (TokenMode.STRICT, TokenMode.GRACE)
        return (token.grace_seconds or 0.0) if spent else math.inf, late
    late = Late.REJECTED if window.late is AfterWindow.REJECTED else Late.EXECUTES_AGAIN
    if window.seconds is not None:
        return window.seconds, late
    return (math.inf if window.bound in (Bound.FOR_EVER, Bound.STATE) else UNKNOWN_WINDOW_SECONDS), late


def _lookup(receiver: Receiver) -> tuple[bool, float]:
    """Whether it can be asked, and from when on it shows."""
    ways = [way for way in receiver.lookups if way.kind is not LookupKind.EVENT]
    way = next((way for way in ways if way.by == receiver.asks), ways[0] if ways else None)
    if way is None:
        return False, UNKNOWN_LAG_SECONDS[LookupKind.EVENT]
    return True, UNKNOWN_LAG_SECONDS[way.kind] if way.lag_seconds is None else way.lag_seconds


def _codes(receiver: Receiver) -> dict[Said, tuple[int, str]]:
    """The first status and code of each meaning that the catalog names."""
    found: dict[Said, tuple[int, str]] = {}
    if receiver.token is not None and receiver.token.refusals:
        found[Said.SPENT] = (400, receiver.token.refusals[0])
    for answer in (*receiver.answers, *(receiver.commits.answers if receiver.commits else ())):
        code = answer.codes[0] if answer.codes else ""
        found.setdefault(Said(answer.means), (answer.status[0] if answer.status else 409, code))
    return found
