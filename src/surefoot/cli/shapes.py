"""What `--json` prints: one of these documents. Names and types stay; new fields may come.

Instants are seconds since the epoch, 0.0 where there was none. Values that a workflow stored (arguments, results,
requests, receipts) are given as the JSON that they are; one whose bytes are damaged is `{"damaged": why}`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all documents and their parts."""


class RunRow(Shape, frozen=True):
    """One run. `claims`: how often a process took it, the first time included."""

    id: str
    workflow: str
    status: str
    reason: str
    created_at: float
    updated_at: float
    claims: int
    cancel_requested: bool


class Runs(Shape, frozen=True):
    """`surefoot runs`: newest first; `more` tells that `--limit` left some out."""

    runs: list[RunRow]
    more: bool


class EvidenceRow(Shape, frozen=True):
    """One thing that somebody learned about an effect; see `surefoot.core.effect.Evidence`."""

    at: float
    kind: str
    found: str
    text: str
    who: str
    attempt: int
    value: Any


class EffectRow(Shape, frozen=True):
    """One effect. `run` is "" outside runs; `explained` is the arithmetic behind one that is not settled.

    `resolve` holds the three commands that end its doubt; it is empty unless the effect is parked.
    """

    key: str
    name: str
    identity: str
    run: str
    slot: str
    status: str
    contract: str
    attempts: int
    created_at: float
    updated_at: float
    first_sent_at: float
    doubted_at: float
    reason: str
    request: Any
    receipt: Any
    compensates: str
    evidence: list[EvidenceRow]
    explained: str
    resolve: list[str]


class Tokens(Shape, frozen=True):
    """What a model reported: `input` includes `cached` ones and those `written` to a cache, `output` `reasoning`."""

    input: int
    output: int
    cached: int
    reasoning: int
    written: int


class Moment(Shape, frozen=True):
    """One line of a run's timeline.

    Kinds: `step`, `failure`, `intent`, `outcome`, `mark` are journal entries (`entry` is their position), and so are
    `call` (a model's answer, with its `usage` and, where a price was given, its `money`), `attempt` (a call of a model
    that failed) and `note` (a remark, such as that a model was called in a way that nothing records);
    `started`, `resumed`, `takeover` (its owner died or hung) are changes of owner; `decision` is a person's;
    `status` is where the run stands, when nobody works on it.
    """

    at: float
    kind: str
    text: str
    slot: str = ""
    entry: int | None = None
    attempts: int | None = None
    tokens: int | None = None
    key: str = ""
    status: str = ""
    usage: Tokens | None = None
    money: str = ""


class Divergence(Shape, frozen=True):
    """Both sides: `recorded` entries that the code did not ask for, and what it `asked` for instead."""

    reason: str
    recorded: list[str]
    asked: str


class Shown(Shape, frozen=True):
    """`surefoot show`: `damage` is set, and the timeline short, when the journal cannot be read.

    `calls` counts the answers of models, `usage` adds up their tokens, `money` what was spent as far as it is known
    ("" when nothing is); `notes` are remarks, the same as in the timeline.
    """

    run: RunRow
    arguments: Any
    result: Any
    tokens: int
    parent: str
    children: list[str]
    budget: list[Limit]
    timeline: list[Moment]
    effects: list[EffectRow]
    diverged: Divergence | None
    damage: str
    calls: int = 0
    usage: Tokens | None = None
    money: str = ""
    notes: list[str] = []


class ScheduleRow(Shape, frozen=True):
    """One schedule. Instants are seconds since the epoch; `next` is empty while it is paused."""

    name: str
    workflow: str
    when: str
    queue: str
    catch_up: str
    paused: bool
    next: list[float]
    last_run: str
    last_at: float | None
    skipped_from: float | None
    skipped_until: float | None


class Schedules(Shape, frozen=True):
    """`surefoot schedules`: by name, as they stand after what was asked for."""

    schedules: list[ScheduleRow]


class Limit(Shape, frozen=True):
    """One limit of a run's budget, and what has been used of it; `unit` is s, USD or empty."""

    name: str
    used: str
    allowed: str
    unit: str


class Proposal(Shape, frozen=True):
    """One of the requests that were made under one identity."""

    at: float
    run: str
    name: str
    request: Any


class Doubt(Shape, frozen=True):
    """One effect that somebody should know about.

    `next` says what happens without a person, or what a person has to do. `proposals` holds every request under this
    identity, the recorded one first, when they disagree.
    """

    effect: EffectRow
    next: str
    proposals: list[Proposal]


class Doubts(Shape, frozen=True):
    """`surefoot doubts`: parked, in doubt, or asked for with another request."""

    doubts: list[Doubt]


class Resolved(Shape, frozen=True):
    """`surefoot resolve`: the effect as it stands now."""

    effect: EffectRow
    next: str


class ApprovalRow(Shape, frozen=True):
    """One approval. `status` is pending, approved, denied, expired or ended (its run was over first).

    `text` is what is asked for on one line; `artifact` all of it (`show`, `approve`, `deny`; null in a list).
    """

    id: str
    run: str
    by: str
    status: str
    digest: str
    until: float
    text: str
    effect: str
    artifact: Any
    asked_at: float
    who: str
    why: str
    decided_at: float


class Approvals(Shape, frozen=True):
    """`surefoot approvals`: what is asked for and not decided, the soonest to expire first."""

    approvals: list[ApprovalRow]


class ApprovalDecided(Shape, frozen=True):
    """`surefoot approve` and `surefoot deny`: the approval as it stands now."""

    approval: ApprovalRow
    next: str


class RunFinding(Shape, frozen=True):
    """An unfinished run: why it is not finished, since when, and what to do. `owner` is who works on it, or did."""

    run: RunRow
    why: str
    since: float
    owner: str
    attention: bool
    next: str


class EffectFinding(Shape, frozen=True):
    """An effect that is not settled."""

    effect: EffectRow
    since: float
    owner: str
    attention: bool
    next: str


class ScheduleFinding(Shape, frozen=True):
    """A schedule whose time has come, and that nobody has started; it needs attention."""

    name: str
    workflow: str
    queue: str
    why: str
    since: float
    next: str


class Checkup(Shape, frozen=True):
    """`surefoot doctor`: `attention` is true when the exit code is 1. `schedules` are those that are overdue."""

    runs: list[RunFinding]
    effects: list[EffectFinding]
    damage: list[str]
    attention: bool
    schedules: list[ScheduleFinding]


class Cancelled(Shape, frozen=True):
    """`surefoot cancel`: the run as it stands now."""

    run: RunRow
    next: str


class Migrated(Shape, frozen=True):
    """`surefoot migrate`: the version of the store's schema `before`, `now`, and that which this Surefoot needs.

    0 means that there is no store yet. With `--check` nothing was changed, so `now` is `before`. `granted` is
    the role that may work there now, if one was named.
    """

    store: str
    before: int
    now: int
    needed: int
    granted: str = ""


class QueueRow(Shape, frozen=True):
    """One queue. Limits are 0 where there is none. `ready` runs wait for a worker, the oldest since `oldest_at`.

    `later` ones are not due yet, `unserved` ones (of both) no live worker could take; `workers` serve this queue.
    """

    name: str
    concurrency: int
    per_worker: int
    per_key: int
    rate: int
    period_seconds: float
    ready: int
    later: int
    running: int
    unserved: int
    oldest_at: float
    workers: int


class Queues(Shape, frozen=True):
    """`surefoot queues`: by name."""

    queues: list[QueueRow]


class Signalled(Shape, frozen=True):
    """`surefoot signal`: the run as it stands now, and the message that it has."""

    run: RunRow
    name: str
    value: Any
    who: str


class Retried(Shape, frozen=True):
    """`surefoot retry`: the run as it stands now."""

    run: RunRow
    next: str
