"""How a receiver behaves, as data: what the engine needs to know, and nothing about who the receiver is.

The engine depends on this alone, so a receiver of the catalog, a user's own service and a lying one ("the window is
shorter than it says") are the same thing: a `Behaviour` with other values, made with `dataclasses.replace`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ...core.contract import Place
from ...core.errors import UsageError


class Sort(StrEnum):
    """The nineteen classes of receivers: what a repeat of a request meets."""

    KEY_REPLAY = "key_replay"
    KEY_REJECT_WITH_POINTER = "key_reject_with_pointer"
    KEY_REJECT = "key_reject"
    NATURAL_KEY = "natural_key"
    UPSERT = "upsert"
    CONDITIONAL = "conditional"
    STATE_KEY = "state_key"
    SILENT_DROP_WINDOW = "silent_drop_window"
    HEURISTIC_WINDOW = "heuristic_window"
    TWO_STEP_COMMIT = "two_step_commit"
    MONOTONIC_SEQUENCE = "monotonic_sequence"
    SESSION_SCOPED = "session_scoped"
    LOOKUP_ONLY = "lookup_only"
    LOOKUP_BY_EVENT = "lookup_by_event"
    NONE = "none"
    MIXED = "mixed"
    SINGLE_USE_SECRET = "single_use_secret"
    ROTATING_REUSABLE_SECRET = "rotating_reusable_secret"
    REUSABLE_SECRET = "reusable_secret"


class InFlight(StrEnum):
    """What a request meets while an earlier one under its key still runs."""

    REJECT = "reject"
    HOLD = "hold"
    BOTH = "both"


class Late(StrEnum):
    """What a repeat meets once the window is over."""

    EXECUTES_AGAIN = "executes_again"
    REJECTED = "rejected"
    FAMILY_REVOKED = "family_revoked"


class Said(StrEnum):
    """What an answer says. The first four are successes; a wire gives each its shape."""

    MADE = "made"
    REPLAYED = "replayed"
    DROPPED = "dropped"
    SHOWN = "shown"
    LANDED = "landed"
    EXISTS = "exists"
    IN_FLIGHT = "in_flight"
    CHANGED_PAYLOAD = "changed_payload"
    SPENT = "spent"
    EXPIRED = "expired"
    NOT_PROCESSED = "not_processed"
    REFUSED = "refused"
    ERROR = "error"
    STORED_ERROR = "stored_error"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"


SUCCESSES = frozenset((Said.MADE, Said.REPLAYED, Said.DROPPED, Said.SHOWN))

DEFAULT_CODES: Mapping[Said, tuple[int, str]] = {
    Said.MADE: (201, ""),
    Said.REPLAYED: (201, ""),
    Said.DROPPED: (201, ""),
    Said.SHOWN: (200, ""),
    Said.LANDED: (409, "already_made"),
    Said.EXISTS: (409, "already_exists"),
    Said.IN_FLIGHT: (409, "in_flight"),
    Said.CHANGED_PAYLOAD: (422, "changed_payload"),
    Said.SPENT: (400, "key_spent"),
    Said.EXPIRED: (422, "key_expired"),
    Said.NOT_PROCESSED: (503, "not_processed"),
    Said.REFUSED: (422, "declined"),
    Said.ERROR: (500, "internal_error"),
    Said.STORED_ERROR: (500, "internal_error"),
    Said.MALFORMED: (400, "malformed_key"),
    Said.UNKNOWN: (404, "unknown_operation"),
}

SHAPES: Mapping[str, tuple[str, str]] = {
    "any": (r"[\x20-\x7e]+", "printable characters"),
    "uuid": (
        r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        "a UUID (36 characters)",
    ),
    "uuid4": (r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "a UUID of version 4"),
    "uuid5": (r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "a UUID of version 5"),
    "uuid7": (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", "a UUID of version 7"),
    "hex": (r"[0-9a-f]+", "lower-case hexadecimal digits without hyphens"),
    "base32": (r"[0-9a-v]+|[0-9a-z]+", "lower-case letters and digits"),
    "base62": (r"[0-9A-Za-z]+", "letters and digits"),
    "word": (r"[0-9A-Za-z_-]+", "letters, digits, - and _"),
    "dns": (r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", "a lower-case DNS name"),
    "number": (r"[0-9]+", "decimal digits"),
    "sequence": (r"[0-9]+", "an increasing whole number"),
}
"""Shape -> (the pattern of a whole key, in words)."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What one receiver does with a request, its repeats and questions about it. Seconds throughout.

    `operations` maps the names that exist to their class; one entry for most, more for a mixed receiver.
    `window_seconds`: how long a repeat is recognised, from the first request (inf: for ever; of a state key and of a
    secret, see `classes.py`). `compares_payload`: a known key with other content is refused. `stores_refusals` and
    `stores_errors`: a 4xx or 5xx that came of executing is given again to a repeat. `lag_seconds`: from when on a
    lookup shows what was done; `shows` False: it can not be asked at all.
    """

    name: str
    operations: Mapping[str, Sort]
    window_seconds: float = math.inf
    late: Late = Late.EXECUTES_AGAIN
    in_flight: InFlight = InFlight.REJECT
    compares_payload: bool = False
    stores_refusals: bool = False
    stores_errors: bool = False
    place: Place = Place.HEADER
    key_name: str = "Idempotency-Key"
    key_required: bool = False
    shape: str = "any"
    length_min: int = 1
    length_max: int = 255
    prefix: str = ""
    quoted: bool = False
    replay_marker: tuple[str, str] | None = None
    shows: bool = True
    lag_seconds: float = 0.0
    codes: Mapping[Said, tuple[int, str]] = field(default_factory=dict[Said, tuple[int, str]])

    def __post_init__(self) -> None:
        """Raises UsageError for what no receiver can be."""
        if not self.operations:
            raise UsageError(f"the behaviour of {self.name!r} needs an operation; give operations={{'create': ...}}")
        for operation, sort in self.operations.items():
            if sort is Sort.MIXED:
                raise UsageError(f"{self.name!r} is mixed: say the class of {operation!r} itself")
        if self.shape not in SHAPES:
            raise UsageError(f"unknown key shape {self.shape!r}; expected one of {', '.join(SHAPES)}")
        for what, seconds in (("window_seconds", self.window_seconds), ("lag_seconds", self.lag_seconds)):
            if not seconds >= 0:
                raise UsageError(f"{what} of {self.name!r} must be 0 or more, found {seconds!r}")

    def code(self, said: Said) -> tuple[int, str]:
        """The status and the error code that this receiver gives to what it says; "" where there is none."""
        return self.codes.get(said, DEFAULT_CODES[said])

    def why_malformed(self, key: str) -> str:
        """What is wrong with a key, in words; "" when it fits."""
        pattern, words = SHAPES[self.shape]
        if not key:
            return f"{self.key_name} is missing" if self.key_required else ""
        if not self.length_min <= len(key) <= self.length_max:
            return f"{self.key_name} must have {self.length_min} to {self.length_max} characters, found {len(key)}"
        if not key.startswith(self.prefix):
            return f"{self.key_name} must begin with {self.prefix!r}, found {key!r}"
        if not re.fullmatch(pattern, key.removeprefix(self.prefix)):
            return f"{self.key_name} must be {words}, found {key!r}"
        return ""
