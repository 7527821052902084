"""How one cell of the decision table is performed: a twin, a clock, a store, and processes that are killed.

Each scene first proves that the kill happened and that the twin saw what it should; what came of it is counted in the
twin's ledger, and a parked effect is decided by it, as a person would decide by the receiver's books.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from surefoot import receivers
from surefoot.receivers.model import Receiver
from surefoot.testing.forkserver import Child, ForkServer
from surefoot.testing.ledger import Line
from surefoot.testing.twins import SharedClock, Twin

from .decision_table import BOTH_LIVE, ONE_KILLED, REFUSED_CONNECTION, STORE_LOST, Cell, Column, Point, Way, is_parked

AGENT = str(Path(__file__).with_name("decision_agent.py"))
LIFE_SECONDS_MAX = 50.0
YEAR = 365 * 86_400.0
CELLS_AT_ONCE = 6


@dataclass(kw_only=True)
class Performed:
    """What a cell came to: how it ended before a person, how often it was sent and acted, what was wrong."""

    end: str = ""
    sends: int = 0
    asks: int = 0
    acts_before_person: int = 0
    acts: int = 0
    problems: list[str] = field(default_factory=list[str])


class Stage:
    """One cell's twin, clock, store and processes."""

    def __init__(self, server: ForkServer, folder: Path, cell: Cell, **lies: Any) -> None:
        folder.mkdir()
        self.server, self.folder, self.cell = server, folder, cell
        self.receiver: Receiver = receivers.get(cell.row.receiver)
        self.clock = SharedClock(folder / "clock")
        self.twin = Twin.of(self.receiver, folder / "ledger.jsonl", clock=self.clock, **lies)
        self.two_steps = self.receiver.prepares is not None
        self.secret = self.twin.issue() if self.receiver.token is not None else ""
        self.contracts = msgspec.to_builtins(
            {
                "contract": self.receiver.commit if self.two_steps else self.receiver.contract,
                "prepare": self.receiver.prepare if self.two_steps else None,
                "key_name": self.twin.behaviour.key_name,
                "key_place": self.receiver.key.place,
                "marker": "producer-1" if self.receiver.class_ == "monotonic_sequence" else "",
            }
        )
        self.told: dict[str, Any] = {}
        self.done = Performed()

    # --- lives ------------------------------------------------------------------------------------------------------

    def start(self, function: str = "live", **told: Any) -> Child:
        row = self.cell.row
        job: dict[str, Any] = {
            **self.contracts,
            "operation": row.operation,
            "db": str(self.folder / "agents.db"),
            "clock": str(self.folder / "clock"),
            "port": self.twin.port,
            "secret": self.secret,
            "can_ask": row.can_ask and bool(self.receiver.lookups),
        }
        return self.server.start(function, job | self.told | told)

    def meets(self, *faults: str) -> None:
        """What the effect's next sends meet; the harmless first step of two is well served."""
        self.twin.next(*(["none"] if self.two_steps else []), *faults)

    def live(self, function: str = "live", **told: Any) -> str:
        """One life to its end; how it ended."""
        child = self.start(function, **told)
        status = child.join()
        ends = [line for line in child.lines if line.split(" ")[0] in ("result", "parked", "disagrees", "refused")]
        self.check(status == 0 and len(ends) == 1, f"a life ended with {status}, it said {child.lines[-3:]}")
        return ends[0] if ends else ""

    def die(self, point: Point, function: str = "live") -> None:
        """One life, killed at this point: proved by its exit status, and by what the twin saw."""
        port = {"act_port": self.closed_port()} if point is REFUSED_CONNECTION else {}
        if point.fault:
            self.meets(point.fault)
        child = self.start(function, kill=point.dies, hangs=point.until == "says", **port)
        if point.dies:
            status = child.join()
        else:
            self.reach(child, point)
            status = child.kill()
        self.check(status == -9, f"the first life was not killed: {status}, it said {child.lines[-3:]}")
        self.check(child.said("result ") is None, "the first life had its result")
        sent = len(self.sends())
        self.check(sent == point.sends, f"the twin saw {sent} requests before the kill, expected {point.sends}")
        if point.fault == "late":
            self.check(self.twin.release() == 1, "nothing was held that could be performed late")
        acts = len(self.acts())
        self.check(acts == point.acts, f"{acts} acts before the restart, expected {int(point.acts)}")

    def reach(self, child: Child, point: Point) -> None:
        """Return when the twin has seen what this point needs."""
        if point.until == "says":
            child.read(LIFE_SECONDS_MAX, until="failed 500")
            return
        prepared = self.two_steps and point.until == "arrived"
        self.twin.wait_for(point.until, 2 if prepared else 1, timeout=LIFE_SECONDS_MAX)

    def closed_port(self) -> int:
        """A port on which nobody listens: bound, so that nobody else takes it either."""
        self.closed = socket.socket()
        self.closed.bind(("127.0.0.1", 0))
        return self.closed.getsockname()[1]

    # --- what the ledger says ---------------------------------------------------------------------------------------

    def lines(self, what: str) -> list[Line]:
        return self.twin.lines(what)

    def sends(self) -> list[Line]:
        return [line for line in self.lines("arrived") if line.key or not self.two_steps]

    def acts(self) -> list[Line]:
        return self.twin.acts("o1")

    def check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.done.problems.append(problem)

    # --- endings ----------------------------------------------------------------------------------------------------

    def end(self, said: str) -> None:
        """Take down how it ended; where it is parked, a person decides by the ledger, and it goes on to its end."""
        self.done.end = said.split(" ")[0]
        self.done.sends, self.done.asks = len(self.sends()), len(self.lines("looked_up"))
        self.done.acts_before_person = len(self.acts())
        if self.done.end == "parked":
            decision = "happened" if self.acts() else "did_not_happen"
            said = self.live(decision=decision)
            self.check(said.startswith("result"), f"after a person's {decision} it ended with {said!r}")
        self.done.acts = len(self.acts())

    def close(self) -> None:
        self.twin.close()
        self.clock.close()


# --- performing -----------------------------------------------------------------------------------------------------


def margin_is_over(stage: Stage) -> None:
    """The whole window passes, so that a blind resend would act a second time; what has no window gets a year."""
    window = stage.twin.behaviour.window_seconds
    stage.twin.advance(YEAR if window in (0.0, math.inf) else window + 1)
    for line in stage.acts():
        if stage.receiver.class_ == "state_key":
            stage.twin.finish(line.key)


def in_doubt(stage: Stage) -> None:
    """Die, wait, live again."""
    stage.die(stage.cell.point)
    if stage.cell.column is Column.PAST:
        margin_is_over(stage)
    else:
        stage.twin.advance(5.0)
    stage.end(stage.live())


def another_payload(stage: Stage) -> None:
    """The same identity is asked for with other content: by another run, or by one whose store was lost."""
    if stage.cell.point is STORE_LOST:
        stage.check(stage.live().startswith("result"), "the first store's run did not end well")
        stage.told = {"db": str(stage.folder / "another.db"), "text": "something else"}
        stage.end(stage.live())
        return
    stage.die(stage.cell.point)
    said = stage.live(run="r2", text="something else")
    stage.check(said.startswith("disagrees") and "something else" in said, f"both sides were not shown: {said!r}")
    stage.check(len(stage.sends()) == 1, "the other payload was sent")
    stage.end(stage.live())


def two_at_once(stage: Stage) -> None:
    """A second process wants the same effect while the first one's request is in flight."""
    point = stage.cell.point
    stage.meets(point.fault)
    first = stage.start()
    stage.reach(first, point)
    second = stage.start(run="r2")
    stage.check(second.read(LIFE_SECONDS_MAX, until="waits"), f"the second did not wait: {second.lines[-3:]}")
    stage.check(len(stage.sends()) == 1, "the second process sent too")
    stage.check(stage.twin.release() == 1, "nothing was in flight")
    if point is ONE_KILLED:
        stage.check(first.kill() == -9, "the first process was not killed")
    else:
        stage.check(first.join() == 0, f"the first process failed: {first.lines[-3:]}")
    stage.check(second.join() == 0, f"the second process failed: {second.lines[-3:]}")
    ends = [line for line in second.lines if line.split(" ")[0] in ("result", "parked", "refused")]
    if point is BOTH_LIVE:
        stage.check(first.said("result ") == second.said("result "), "they got two receipts")
    stage.told = {"run": "r2"}
    stage.end(ends[-1] if ends else "")


SCENES: dict[Column, Callable[[Stage], None]] = {
    Column.NOT_SENT: in_doubt,
    Column.WITHIN: in_doubt,
    Column.PAST: in_doubt,
    Column.TOLD_500: in_doubt,
    Column.CHANGED: another_payload,
    Column.TWO_AT_ONCE: two_at_once,
}


def perform(server: ForkServer, folder: Path, cell: Cell, **lies: Any) -> Performed:
    """Perform one cell and compare what the ledger counted with what is expected."""
    stage = Stage(server, folder, cell, **lies)
    try:
        SCENES[cell.column](stage)
        judge(stage)
    except (TimeoutError, OSError, EOFError) as error:
        stage.done.problems.append(f"{type(error).__name__}: {error}")
    finally:
        stage.close()
    return stage.done


def judge(stage: Stage) -> None:
    """0 duplicates, 0 lost, parked only where the table says so, and by the way that it says."""
    done, point, way = stage.done, stage.cell.point, stage.cell.way
    stage.check(done.acts == 1, f"{done.acts} acts in the end")
    if point is BOTH_LIVE:
        stage.check(done.end == "result" and done.sends == 1, f"ended {done.end} after {done.sends} sends")
        return
    if point is STORE_LOST:
        end = "parked" if is_parked(stage.cell) else "refused"
        stage.check(done.end == end, f"ended {done.end}, expected {end}")
        return
    parks = is_parked(stage.cell)
    stage.check(done.end == ("parked" if parks else "result"), f"ended {done.end}; {way} for acts={point.acts}")
    again = way in (Way.RESEND, Way.RESEND_FETCH, Way.RESEND_ASK) or (way is Way.ASK_SEND and not point.acts)
    sends = point.sends + again
    stage.check(done.sends == sends, f"sent {done.sends} times, expected {sends}")
    asked = way in (Way.ASK_SEND, Way.ASK_PARK) or (way in (Way.RESEND_ASK, Way.RESEND_FETCH) and point.acts)
    stage.check(bool(done.asks) == asked, f"asked {done.asks} times, expected {'some' if asked else 'none'}")


def perform_all(server: ForkServer, folder: Path, cells: Iterable[Cell]) -> dict[str, Performed]:
    """Perform cells, a few at a time."""
    numbered = list(enumerate(cells))
    with ThreadPoolExecutor(CELLS_AT_ONCE) as pool:
        done = pool.map(lambda one: perform(server, folder / f"cell{one[0]}", one[1]), numbered)
    return {cell.id: result for (_, cell), result in zip(numbered, done, strict=True)}
