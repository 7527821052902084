"""What passes between a wire and the engine, and what goes wrong on the way.

The engine speaks no HTTP: a wire (`plain.py`, or one of `wire/`) reads a call into a `Request` or a `Question`, and
writes the `Answer` back in the receiver's own shape. So a contract is written once, and a shape knows no contract.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from .behaviour import Behaviour, Said

Json = dict[str, Any]


class Fault(StrEnum):
    """What goes wrong with one arrival.

    `lost_request` never acts, `lost_answer` acts; no answer comes to either. `reset` acts and cuts the connection.
    `late` gives no answer and acts when it is released; `hold` waits to be released, then acts and answers.
    `error_before` answers 500 without beginning; `error_during` begins, undoes it and answers 500; `error_after` acts
    and answers 500. `unreadable` acts and answers rubbish. `double` is delivered twice. `refused` is declined.
    `busy` says that nothing was processed. `limited` is turned away with 429, before the key is looked at.
    """

    NONE = "none"
    LOST_REQUEST = "lost_request"
    LOST_ANSWER = "lost_answer"
    RESET = "reset"
    LATE = "late"
    HOLD = "hold"
    ERROR_BEFORE = "error_before"
    ERROR_DURING = "error_during"
    ERROR_AFTER = "error_after"
    UNREADABLE = "unreadable"
    DOUBLE = "double"
    REFUSED = "refused"
    BUSY = "busy"
    LIMITED = "limited"


class Leaves(StrEnum):
    """How an answer leaves: as written, not at all, as a cut connection, or as rubbish."""

    WHOLE = "whole"
    SILENT = "silent"
    RESET = "reset"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to act, as a wire read it.

    `payload` is what the receiver compares and acts on, without the key. `name` says in the ledger which effect it is.
    `marker` is what a lookup finds it by besides the key; `scope` (account, region, endpoint) separates keys;
    `session` names the client session that it belongs to. A request that `closes` a key makes nothing: it finishes
    what is open under that key, which no longer protects it then.
    """

    operation: str
    payload: Json
    key: str = ""
    name: str = ""
    marker: str = ""
    scope: str = ""
    session: str = ""
    closes: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One lookup: everything of `operation` ("": of any) whose key, marker, id or name is `value` ("": whatever).

    Oldest first; what is closed only if `closed`. `lag_seconds` is this lookup's own lag, where it is another one than
    the behaviour's.
    """

    value: str = ""
    operation: str = ""
    scope: str = ""
    closed: bool = False
    lag_seconds: float | None = None


@dataclass(kw_only=True)
class Thing:
    """One thing that was made: its number, and when."""

    number: int
    request: Request
    made_at: float
    open: bool = True
    facts: Json = field(default_factory=dict[str, Any])

    @property
    def id(self) -> str:
        """Its id, as the receiver would give it."""
        return str(self.facts.get("id") or f"{self.request.operation}_{self.number}")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the twin says. `thing` is what was made or found; `found` what a question showed.

    `replayed` is True when a stored answer is given again; `text` explains an error to a person.
    """

    said: Said
    thing: Thing | None = None
    found: tuple[Thing, ...] = ()
    text: str = ""
    replayed: bool = False
    leaves: Leaves = Leaves.WHOLE
    status: int = 0


@dataclass(frozen=True, kw_only=True)
class Call:
    """One HTTP call as it arrived. Header names are lower case; `path` is decoded and begins with a slash."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict[str, str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Page:
    """One HTTP answer as it leaves."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])


class Wire(Protocol):
    """The shape of a receiver's HTTP, without its contract. Both functions are pure."""

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """What a call asks for; a Page when it asks for nothing that acts, such as a path that does not exist."""
        ...

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """An answer in this receiver's shape; how it leaves (`answer.leaves`) is the server's business."""
        ...
