"""From what the catalog says about a receiver to how its twin behaves. Pure.

What the catalog does not know, the twin has to do somehow: a window of a day, a repeat that acts again after it, a
second request that is refused while the first one runs, a lookup that shows after a moment. Say otherwise in
`Twin.of(receiver, window_seconds=0)`; Surefoot relies on none of it.
"""

from __future__ import annotations

import math
from typing import Any

from ...core.contract import Bound, Place
from .behaviour import Behaviour, InFlight, Late, Said, Sort

UNKNOWN_WINDOW_SECONDS = 86_400.0
UNKNOWN_LAG_SECONDS = {"get": 0.0, "list": 2.0, "search": 60.0, "event": 60.0}
IN_FLIGHT = {
    "rejected": InFlight.REJECT,
    "waits": InFlight.HOLD,
    "one_wins": InFlight.HOLD,
    "both_run": InFlight.BOTH,
    "unknown": InFlight.REJECT,
}
SHAPES = {"number": "number", "sequence": "sequence", "receiver_made": "any", "any": "any"}
CHARSETS = {
    "any": "any",
    "token": "word",
    "dns": "dns",
    "alphanumeric": "base62",
    "base32hex": "base32",
    "hex": "hex",
    "digits": "number",
}


def behaviour_of(receiver: Any) -> Behaviour:
    """How the twin of this `surefoot.receivers.Receiver` behaves."""
    key, token = receiver.key, receiver.token
    shape = CHARSETS[key.charset] if key.shape == "any" else SHAPES.get(key.shape, str(key.shape))
    window, late = _window(receiver)
    shows, lag = _lookup(receiver)
    marker = receiver.marker
    return Behaviour(
        name=receiver.id,
        operations=_operations(receiver),
        window_seconds=window,
        late=late,
        in_flight=InFlight.HOLD if token else IN_FLIGHT[receiver.in_flight],
        compares_payload=receiver.payload_compared == "yes",
        stores_refusals=receiver.replay.refusals == "yes",
        stores_errors=receiver.replay.errors == "yes",
        place=_place(key.place),
        key_name=key.name.split(" ")[0] or "key",
        key_required=key.required == "yes",
        shape=shape,
        length_min=key.min_length or 1,
        length_max=key.max_length or 255,
        prefix=key.prefix,
        quoted=key.quoted,
        replay_marker=(marker.name, marker.value) if marker is not None and marker.place == "header" else None,
        shows=shows,
        lag_seconds=lag,
        codes=_codes(receiver),
    )


def _operations(receiver: Any) -> dict[str, Sort]:
    own = Sort(receiver.class_)
    named = {name: Sort(variant.class_ or own) for name, variant in receiver.variants.items()}
    rest = {"create": own} if own is not Sort.MIXED else {}
    return {name: sort for name, sort in {**rest, **named}.items() if sort is not Sort.MIXED}


def _window(receiver: Any) -> tuple[float, Late]:
    token, window = receiver.token, receiver.window
    if token is not None:
        late = Late.FAMILY_REVOKED if token.revokes_family == "yes" else Late.EXECUTES_AGAIN
        return (token.grace_seconds or 0.0 if token.mode in ("strict", "grace") else math.inf), late
    late = Late.REJECTED if window.late == "rejected" else Late.EXECUTES_AGAIN
    if window.seconds is not None:
        return window.seconds, late
    return (math.inf if window.bound in (Bound.FOR_EVER, Bound.STATE) else UNKNOWN_WINDOW_SECONDS), late


def _lookup(receiver: Any) -> tuple[bool, float]:
    """Whether it can be asked, and from when on it shows."""
    ways = [way for way in receiver.lookups if way.kind != "event"]
    way = next((way for way in ways if way.by == receiver.asks), ways[0] if ways else None)
    if way is None:
        return False, UNKNOWN_LAG_SECONDS["event"]
    return True, UNKNOWN_LAG_SECONDS[way.kind] if way.lag_seconds is None else way.lag_seconds


def _place(place: str) -> Place:
    return Place.BODY if place == "graphql_directive" else Place(place)


def _codes(receiver: Any) -> dict[Said, tuple[int, str]]:
    """The first status and code of each meaning; an answer of a 2xx status is a refusal by its code alone."""
    found: dict[Said, tuple[int, str]] = {}
    for answer in receiver.answers:
        said = Said(answer.means)
        code = answer.codes[0] if answer.codes else ""
        found.setdefault(said, (answer.status[0] if answer.status else 409, code))
    return found
