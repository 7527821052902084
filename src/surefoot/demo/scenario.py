"""The incident, its thirty kills, its seven policies, and the figures that arithmetic alone predicts.

Pure and small on purpose: the harness counts from the receivers' records, this module says what the windows imply,
and neither looks at the other. Where they disagree, the report names the kill.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

WAITING_EXIT = 75
"""The exit code of an agent that cannot go on before a person has answered (``EX_TEMPFAIL``)."""


class Window(StrEnum):
    """Where in a step the agent is killed."""

    BEFORE = "before"  # the request has arrived; the receiver has not acted
    EFFECT = "effect"  # the receiver has acted and recorded it; its answer never leaves
    RECORDED = "recorded"  # the step has returned and what the policy keeps per step is kept


class Offer(StrEnum):
    """What the receiver of a write does about duplicates."""

    NOTHING = "nothing"
    KEYS = "keys"
    LOOKUP = "lookup"


class Keeps(StrEnum):
    """What survives the agent's death."""

    NOTHING = "nothing"
    TURNS = "turns"
    STEPS = "steps"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One model call and the tool call it asks for; steps are numbered 1 to 10 over all turns."""

    number: int
    tool: str
    kind: str
    writes: bool
    tokens: int

    @property
    def model_step(self) -> int:
        return 2 * self.number - 1

    @property
    def tool_step(self) -> int:
        return 2 * self.number


TURNS = (
    Turn(number=1, tool="read_logs", kind="logs", writes=False, tokens=4_400),
    Turn(number=2, tool="open_ticket", kind="tickets", writes=True, tokens=5_900),
    Turn(number=3, tool="page_on_call", kind="pages", writes=True, tokens=7_400),
    Turn(number=4, tool="post_status", kind="status", writes=True, tokens=8_900),
    Turn(number=5, tool="read_metrics", kind="metrics", writes=False, tokens=10_400),
)
BY_TOOL = {turn.tool: turn for turn in TURNS}
BY_KIND = {turn.kind: turn for turn in TURNS}
WRITE_KINDS = tuple(turn.kind for turn in TURNS if turn.writes)
STEPS = tuple(range(1, 2 * len(TURNS) + 1))
TOKENS_CLEAN = sum(turn.tokens for turn in TURNS)


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One SIGKILL: at which step, in which window."""

    step: int
    window: Window

    def __str__(self) -> str:
        return f"{self.step}:{self.window}"

    @property
    def turn(self) -> int:
        return (self.step + 1) // 2

    @property
    def hits_tool(self) -> bool:
        return self.step % 2 == 0

    @property
    def hits_write(self) -> bool:
        return self.hits_tool and 1 <= self.turn <= len(TURNS) and TURNS[self.turn - 1].writes


KILLS = tuple(Kill(step=step, window=window) for step in STEPS for window in Window)


def step_title(step: int) -> str:
    """Names a step as the report shows it: ``model 3``, ``page_on_call``."""
    turn = TURNS[(step - 1) // 2]
    return turn.tool if step % 2 == 0 else f"model {turn.number}"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """One way to survive: which program runs, what it keeps, and what the receiver offers it."""

    name: str
    title: str
    program: tuple[str, str]
    keeps: Keeps
    offer: Offer
    sentence: str

    @property
    def is_surefoot(self) -> bool:
        return self.program[0] == "agents.durable"


POLICIES = (
    Policy(
        name="none",
        title="no persistence",
        program=("agents.plain", "none"),
        keeps=Keeps.NOTHING,
        offer=Offer.NOTHING,
        sentence="Every restart begins at the first step: it pays for each model call again, "
        "and repeats every write that had already happened.",
    ),
    Policy(
        name="turn",
        title="checkpoint per turn",
        program=("agents.plain", "turn"),
        keeps=Keeps.TURNS,
        offer=Offer.NOTHING,
        sentence="Finished turns survive; the turn that was cut short runs again as a whole, its write included.",
    ),
    Policy(
        name="journal",
        title="step journal",
        program=("agents.plain", "journal"),
        keeps=Keeps.STEPS,
        offer=Offer.NOTHING,
        sentence="Every finished step survives, so only one gap is left: "
        "the write happened, its record did not, and it happens again.",
    ),
    Policy(
        name="keys",
        title="journal + keys",
        program=("agents.plain", "keys"),
        keeps=Keeps.STEPS,
        offer=Offer.KEYS,
        sentence="The receiver recognises the key and answers the repeat with the first receipt. "
        "It closes the gap, where a receiver offers it.",
    ),
    Policy(
        name="surefoot-keyed",
        title="Surefoot, keyed",
        program=("agents.durable", "keyed"),
        keeps=Keeps.STEPS,
        offer=Offer.KEYS,
        sentence="The intent is on disk before the request leaves, so the restart knows that the write is in doubt "
        "and sends it again under the same key.",
    ),
    Policy(
        name="surefoot-lookup",
        title="Surefoot, lookup",
        program=("agents.durable", "lookup"),
        keeps=Keeps.STEPS,
        offer=Offer.LOOKUP,
        sentence="No keys: the restart waits until the old attempt must have settled, then looks. "
        "Found: it adopts the receipt. Twice absent: it sends.",
    ),
    Policy(
        name="surefoot-opaque",
        title="Surefoot, opaque",
        program=("agents.durable", "opaque"),
        keeps=Keeps.STEPS,
        offer=Offer.NOTHING,
        sentence="Nothing can be known, so nothing is guessed: the write is parked, a person looks and resolves it "
        "with one command, and the run goes on.",
    ),
)
BY_NAME = {policy.name: policy for policy in POLICIES}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What thirty kills amount to."""

    duplicate_kills: int
    worst_duplicates: int
    mean_extra_tokens: int
    worst_extra_tokens: int


PUBLISHED = {
    "none": Figures(duplicate_kills=20, worst_duplicates=3, mean_extra_tokens=17_967, worst_extra_tokens=37_000),
    "turn": Figures(duplicate_kills=6, worst_duplicates=1, mean_extra_tokens=6_167, worst_extra_tokens=10_400),
    "journal": Figures(duplicate_kills=3, worst_duplicates=1, mean_extra_tokens=1_233, worst_extra_tokens=10_400),
    "keys": Figures(duplicate_kills=0, worst_duplicates=0, mean_extra_tokens=1_233, worst_extra_tokens=10_400),
}
"""Figures measured and published elsewhere for this scenario under the first four policies; ours must equal them."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one kill costs: writes performed once too often, and tokens served on top of a clean run's."""

    duplicates: int
    extra_tokens: int


def predict(policy: Policy, kill: Kill) -> Cost:
    """Derives a kill's cost from its window alone: what was done by then, less what the policy had kept."""
    done = {step for step in STEPS if step < kill.step or (step == kill.step and kill.window is not Window.BEFORE)}
    again = done - _kept(policy, kill)
    tokens = sum(turn.tokens for turn in TURNS if turn.model_step in again)
    repeats_write = policy.offer is Offer.NOTHING and not policy.is_surefoot
    writes = sum(turn.writes for turn in TURNS if turn.tool_step in again) if repeats_write else 0
    return Cost(duplicates=writes, extra_tokens=tokens)


def _kept(policy: Policy, kill: Kill) -> set[int]:
    """The steps whose results are on disk when the kill lands; a turn is saved after its tool's last window."""
    match policy.keeps:
        case Keeps.NOTHING:
            return set()
        case Keeps.TURNS:
            return {step for step in STEPS if (step + 1) // 2 < kill.turn}
        case Keeps.STEPS:
            finished = kill.step if kill.window is Window.RECORDED else kill.step - 1
            return set(range(1, finished + 1))
    assert_never(policy.keeps)


def may_park(policy: Policy, kill: Kill) -> bool:
    """Says whether a person may be needed: only where nothing is offered, and only in a write's send window."""
    nothing_offered = policy.is_surefoot and policy.offer is Offer.NOTHING
    return nothing_offered and kill.hits_write and kill.window is not Window.RECORDED


def summarise(costs: Sequence[Cost]) -> Figures:
    """Adds up kills the way the published table does: kills with a duplicate, worst kill, mean rounded to a token."""
    return Figures(
        duplicate_kills=sum(cost.duplicates > 0 for cost in costs),
        worst_duplicates=max((cost.duplicates for cost in costs), default=0),
        mean_extra_tokens=round(sum(cost.extra_tokens for cost in costs) / len(costs)) if costs else 0,
        worst_extra_tokens=max((cost.extra_tokens for cost in costs), default=0),
    )


def parse_kill(text: str) -> Kill:
    """Reads ``STEP:WINDOW``; raises ValueError that says what is expected."""
    step, _, window = text.partition(":")
    known: Iterable[str] = (str(each) for each in Window)
    if not step.isdigit() or int(step) not in STEPS or window not in known:
        raise ValueError(
            f"expected STEP:WINDOW, a step from 1 to {STEPS[-1]} and one of {', '.join(Window)}; got {text!r}"
        )
    return Kill(step=int(step), window=Window(window))
