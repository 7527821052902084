"""Counts one row from the receivers' own records, and adds rows up; the agent is never asked.

A row is a result only if its kill is proved: the first life ended by SIGKILL, and where a receiver placed the kill it
wrote down exactly that one. Anything else is a harness fault, and a matrix with a fault is not a measurement.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import msgspec

from surefoot.demo.scenario import (
    KILLS,
    PUBLISHED,
    TOKENS_CLEAN,
    WAITING_EXIT,
    WRITE_KINDS,
    Cost,
    Figures,
    Kill,
    Policy,
    Window,
    may_park,
    predict,
    summarise,
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a receiver's record; which fields are set depends on the event."""

    event: str
    kind: str | None = None
    reference: str | None = None
    receipt: dict[str, str] | None = None
    tokens: int = 0
    number: int = 0
    window: Window | None = None


@dataclass(frozen=True, kw_only=True)
class Life:
    """One process of the agent: how it ended, and what the harness should quote if that was unexpected."""

    exit_code: int
    last_words: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kill under one policy, counted; ``kill`` is None for the control, which nobody kills."""

    policy: Policy
    kill: Kill | None
    performed: dict[str, int]
    repeated: int
    tokens: int
    parked: int
    exit_codes: tuple[int, ...]
    seconds: float
    faults: tuple[str, ...]

    @property
    def restarts(self) -> int:
        return len(self.exit_codes) - 1

    @property
    def lost(self) -> int:
        return sum(count == 0 for count in self.performed.values())

    @property
    def cost(self) -> Cost:
        duplicates = sum(max(0, count - 1) for count in self.performed.values())
        return Cost(duplicates=duplicates, extra_tokens=self.tokens - TOKENS_CLEAN)


def read_record(path: Path) -> list[Line]:
    """Reads a receiver's record strictly; a line that cannot be read is an error, not a smaller count."""
    decoder = msgspec.json.Decoder(Line)
    return [decoder.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def count_row(
    policy: Policy,
    kill: Kill | None,
    *,
    world: Sequence[Line],
    model: Sequence[Line],
    lives: Sequence[Life],
    parked: int,
    seconds: float,
) -> Row:
    """Counts a finished row and says what is wrong with it as a measurement, if anything."""
    performed = Counter(line.kind for line in world if line.event == "performed")
    return Row(
        policy=policy,
        kill=kill,
        performed={kind: performed[kind] for kind in WRITE_KINDS},
        repeated=sum(line.event == "repeated" for line in world),
        tokens=sum(line.tokens for line in model if line.event == "served"),
        parked=parked,
        exit_codes=tuple(life.exit_code for life in lives),
        seconds=seconds,
        faults=tuple(find_faults(kill, world=world, model=model, lives=lives)),
    )


def find_faults(
    kill: Kill | None, *, world: Sequence[Line], model: Sequence[Line], lives: Sequence[Life]
) -> Iterable[str]:
    """Yields every reason why a row proves nothing: a kill that did not happen, or a life that ended oddly."""
    placed = [("tool", line) for line in world if line.event == "killed"]
    placed += [("model", line) for line in model if line.event == "killed"]
    seen = [(channel, line.number, line.window) for channel, line in placed]
    expected = [("tool" if kill.hits_tool else "model", kill.turn, kill.window)] if kill is not None else []
    if kill is not None and kill.window is Window.RECORDED:
        expected = []  # the agent ends this life itself; only its exit code can prove it
    if seen != expected:
        yield f"kills on record: expected {expected}, found {seen}"
    if kill is not None and (not lives or lives[0].exit_code != -SIGKILL):
        found = lives[0].exit_code if lives else "no life at all"
        yield f"the first life was to die by SIGKILL ({-SIGKILL}), its exit code is {found}"
    later = lives if kill is None else lives[1:]
    for life in later[:-1]:
        if life.exit_code != WAITING_EXIT:
            yield f"a life that nobody killed ended with {life.exit_code}. {life.last_words}".rstrip()
    if not later or later[-1].exit_code != 0:
        last = lives[-1] if lives else Life(exit_code=1)
        yield f"the agent never finished: last exit code {last.exit_code}. {last.last_words}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Result:
    """One policy's rows (the control apart) and their sums."""

    policy: Policy
    rows: tuple[Row, ...]
    control: Row

    @property
    def figures(self) -> Figures:
        return summarise([row.cost for row in self.rows])

    @property
    def lost(self) -> int:
        return sum(row.lost for row in self.rows)

    @property
    def parked(self) -> int:
        return sum(row.parked for row in self.rows)

    @property
    def restarts(self) -> int:
        return sum(row.restarts for row in self.rows)

    @property
    def mean_seconds(self) -> float:
        return sum(row.seconds for row in self.rows) / len(self.rows)


def judge(result: Result) -> list[str]:
    """Lists whatever differs from what must be seen; empty means that the policy came out as it should.

    Each line names what was expected, what was counted, and at which kills, so a difference explains itself.
    """
    complaints = [f"{name_row(row)}: {fault}" for row in (result.control, *result.rows) for fault in row.faults]
    expected = PUBLISHED.get(result.policy.name)
    if expected is not None and expected != result.figures:
        complaints.append(f"{result.policy.name}: published {expected}, counted {result.figures}")
    if result.control.cost != Cost(duplicates=0, extra_tokens=0):
        complaints.append(f"{name_row(result.control)}: nobody was killed, yet {result.control.cost}")
    for row in (result.control, *result.rows):
        complaints += judge_row(row)
    return complaints


def judge_row(row: Row) -> Iterable[str]:
    """Yields where one row's counts differ from what its window implies, faults apart."""
    if row.lost:
        yield f"{name_row(row)}: lost {[kind for kind, count in row.performed.items() if count == 0]}"
    if row.kill is None:
        return
    expected = predict(row.policy, row.kill)
    if row.cost != expected:
        yield f"{name_row(row)}: the window implies {expected}, counted {row.cost}"
    if row.parked > may_park(row.policy, row.kill):
        yield f"{name_row(row)}: {row.parked} effects parked where a person should not have been needed"


def name_row(row: Row) -> str:
    """A row's name in reports and directories, such as ``keys 4:effect``."""
    return f"{row.policy.name} {row.kill if row.kill is not None else 'control'}"


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Everything one invocation measured, ready to be shown."""

    results: tuple[Result, ...]
    seconds: float
    jobs: int

    @property
    def kills(self) -> int:
        return sum(len(result.rows) for result in self.results)

    @property
    def complaints(self) -> list[str]:
        return [complaint for result in self.results for complaint in judge(result)]


def gather(policies: Sequence[Policy], rows: Sequence[Row], *, seconds: float, jobs: int) -> Matrix:
    """Sorts rows that finished in any order into one result per policy, kills in step order."""
    results: list[Result] = []
    for policy in policies:
        own = [row for row in rows if row.policy == policy]
        control = next(row for row in own if row.kill is None)
        by_kill = {row.kill: row for row in own}
        results.append(Result(policy=policy, rows=tuple(by_kill[kill] for kill in KILLS), control=control))
    return Matrix(results=tuple(results), seconds=seconds, jobs=jobs)
