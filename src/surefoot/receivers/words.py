"""The words for what a receiver does, each a StrEnum, and a sentence for those that people read."""

from __future__ import annotations

from enum import StrEnum


class Class(StrEnum):
    """How a receiver guards against duplicates; `CLASSES` says each in a sentence."""

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


CLASSES: dict[Class, str] = {
    Class.KEY_REPLAY: "keeps the caller's key for a time and answers a repeat with the first result",
    Class.KEY_REJECT_WITH_POINTER: "refuses a used key and names what the first request made: the refusal is a receipt",
    Class.KEY_REJECT: "refuses a used key and does not say what the first request made",
    Class.NATURAL_KEY: "keeps an id, a name or a pair that the caller chose unique while the object exists",
    Class.UPSERT: "creates or updates by a key that the caller chose; a repeat writes the same again",
    Class.CONDITIONAL: "acts only if a precondition holds; a repeat fails with a known code",
    Class.STATE_KEY: "drops repeats while the thing that the key names is open; later the key opens another one",
    Class.SILENT_DROP_WINDOW: "accepts and drops a repeat inside a window, without a sign of it",
    Class.HEURISTIC_WINDOW: "guesses repeats from their content within seconds or minutes",
    Class.TWO_STEP_COMMIT: "first makes something harmless that has an id, then commits that id once",
    Class.MONOTONIC_SEQUENCE: "accepts only a number above the last one of a named producer",
    Class.SESSION_SCOPED: "drops repeats of one client session, which a crash ends",
    Class.LOOKUP_ONLY: "does not guard, but a mark can be attached and asked for",
    Class.LOOKUP_BY_EVENT: "does not guard; only a later event tells that it happened",
    Class.NONE: "does not guard, and cannot be asked dependably",
    Class.MIXED: "guards some operations and others not",
    Class.SINGLE_USE_SECRET: "hands out a token that is used up by its use",
    Class.ROTATING_REUSABLE_SECRET: "hands out a new token at each use and lets the old one live on",
    Class.REUSABLE_SECRET: "hands out a token that may be used again and again",
}

SCOPE_NAMES = ("account", "environment", "region", "endpoint", "credential")
TOKENS = (Class.SINGLE_USE_SECRET, Class.ROTATING_REUSABLE_SECRET, Class.REUSABLE_SECRET)


class Category(StrEnum):
    """What a service is for."""

    PAYMENTS = "payments"
    COMMERCE = "commerce"
    EMAIL = "email"
    SMS = "sms"
    CHAT = "chat"
    CALENDAR = "calendar"
    TRACKER = "tracker"
    SUPPORT = "support"
    CRM = "crm"
    INCIDENT = "incident"
    DOCUMENTS = "documents"
    STORAGE = "storage"
    DATABASE = "database"
    CLOUD = "cloud"
    MESSAGING_INFRA = "messaging_infra"
    STANDARD = "standard"
    OAUTH = "oauth"


class Known(StrEnum):
    """Whether something is so, as far as a source says."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Stakes(StrEnum):
    """What a duplicate would cost: money, a message that somebody reads, or a thing that can be taken back."""

    MONEY = "money"
    MESSAGE = "message"
    REVERSIBLE = "reversible"


class KeyPlace(StrEnum):
    """Where in a request the key goes; wider than the contract's `Place`, which knows what the runtime can fill in.

    `object`: it is the object's own id, such as a primary key or a path. Write `attempt.key` there yourself, as in a
    `graphql_directive`.
    """

    HEADER = "header"
    BODY = "body"
    QUERY = "query"
    PATH = "path"
    MAIL_HEADER = "mail_header"
    PROPERTY = "property"
    OBJECT = "object"
    GRAPHQL_DIRECTIVE = "graphql_directive"
    NONE = "none"


class KeyShape(StrEnum):
    """What a key has to look like. `any`: a text within the limits.

    `given`: it comes with the arguments, since the receiver made it beforehand or it is a name, a range or a slot.
    """

    ANY = "any"
    UUID = "uuid"
    UUID4 = "uuid4"
    UUID5 = "uuid5"
    UUID7 = "uuid7"
    HEX = "hex"
    NUMBER = "number"
    SEQUENCE = "sequence"
    GIVEN = "given"


class Charset(StrEnum):
    """Which characters a key may hold.

    `token`: letters, digits, `-` and `_`. `dns`: lower-case letters, digits and `-`. `alphanumeric`: letters and
    digits. `base32hex`: `0` to `9` and `a` to `v`. `hex`: `0` to `9` and `a` to `f`.
    """

    ANY = "any"
    TOKEN = "token"
    DNS = "dns"
    ALPHANUMERIC = "alphanumeric"
    BASE32HEX = "base32hex"
    HEX = "hex"
    DIGITS = "digits"


class Late(StrEnum):
    """What a repeat does after the window: acts a second time, is rejected, cannot be late, or nobody says."""

    RUNS_AGAIN = "runs_again"
    REJECTED = "rejected"
    NEVER = "never"
    UNKNOWN = "unknown"


class InFlight(StrEnum):
    """What happens to a second request while the first still runs."""

    REJECTED = "rejected"
    WAITS = "waits"
    ONE_WINS = "one_wins"
    BOTH_RUN = "both_run"
    UNKNOWN = "unknown"


class LookupKind(StrEnum):
    """How a receiver is asked: by the object's key, a list, an index that lags behind, or an event that comes."""

    GET = "get"
    LIST = "list"
    SEARCH = "search"
    EVENT = "event"


class Do(StrEnum):
    """What to do with an effect in doubt; `DOES` says each in a sentence."""

    RESEND = "resend"
    LOOKUP_FIRST = "lookup_first"
    LOOKUP_THEN_RESEND = "lookup_then_resend"
    LOOKUP_THEN_PARK = "lookup_then_park"
    RESEND_IF_CONSUMER_DROPS_REPEATS = "resend_if_consumer_drops_repeats"
    CANCEL_OR_PARK = "cancel_or_park"
    WAIT_FOR_EVENT = "wait_for_event"
    PARK = "park"
    NEW_INTENT = "new_intent"


DOES: dict[Do, str] = {
    Do.RESEND: "send the stored request again under the stored key, to the same place",
    Do.LOOKUP_FIRST: "ask first, and send again only after a dependable no",
    Do.LOOKUP_THEN_RESEND: "ask, wait out the lag, ask again; after two clear noes send again",
    Do.LOOKUP_THEN_PARK: "ask; without a clear yes a person tells",
    Do.RESEND_IF_CONSUMER_DROPS_REPEATS: "send again if the consumer is known to drop repeats; else a person tells",
    Do.CANCEL_OR_PARK: "undo whatever the key made, then begin anew; else a person tells",
    Do.WAIT_FOR_EVENT: "wait for the receiver's event, then a person tells",
    Do.PARK: "a person tells",
    Do.NEW_INTENT: "another request is another effect under another key",
}


class TokenMode(StrEnum):
    """What becomes of a refresh token when it is used.

    `strict`: spent at once. `grace`: may be repeated for a time. `reusable`: stays. `rotating_reusable`: a new one
    comes and the old one stays valid.
    """

    STRICT = "strict"
    GRACE = "grace"
    REUSABLE = "reusable"
    ROTATING_REUSABLE = "rotating_reusable"


class Level(StrEnum):
    """Where the core facts come from, best first."""

    DOCUMENTED = "documented"
    DOCUMENTED_COPY = "documented_copy"
    SPEC = "spec"
    SDK_SOURCE = "sdk_source"
    SECONDARY = "secondary"
    INFERRED = "inferred"
    GENERAL_KNOWLEDGE = "general_knowledge"
    DECLARED = "declared"
