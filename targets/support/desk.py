"""The model server and the receiver of the support agent: one server for all runs, one ledger, one crash a run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calls import STEPS

from surefoot.testing.ledger import Line
from targets.shop import Json, Shop

TOKENS = 2_325


@dataclass(frozen=True)
class Crash:
    """Where a run dies: in the model call of `step`, after `fraction` of its tokens, or between write and record."""

    step: int
    gap: bool
    fraction: float


@dataclass
class Place:
    """One run's corner."""

    crash: Crash | None
    offers: str
    victim: int = 0
    known: threading.Event = field(default_factory=threading.Event)
    fired: bool = False
    written: dict[int, list[tuple[str, Json]]] = field(default_factory=lambda: defaultdict(list))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def name_victim(self, pid: int) -> None:
        """Say whom the crash is meant for."""
        self.victim = pid
        self.known.set()

    def takes(self, step: int, *, gap: bool) -> bool:
        """True once: when this is where the run dies."""
        with self.lock:
            here = self.crash is not None and not self.fired and (self.crash.step, self.crash.gap) == (step, gap)
            self.fired = self.fired or here
            return here


class Services(Shop):
    """`POST /RUN/model/N`, `POST /RUN/do/N`, `GET /RUN/find/N`; every line is on disk before anything is answered."""

    def __init__(self, ledger: Path) -> None:
        super().__init__(ledger)
        self.places: dict[str, Place] = {}

    def serve(self, method: str, path: str, body: Json, headers: Any) -> tuple[int, Json | str] | None:
        """Answer, or kill and say nothing."""
        place, _, query = path.strip("/").partition("?")
        run, kind, number = place.split("/")
        at, step = self.places[run], int(number)
        if kind == "find":
            self._line("looked_up", run, step, 0)
            return 200, {"found": [r for reference, r in at.written[step] if f"reference={reference}" == query]}
        if kind == "do":
            return self._write(run, at, step, body, headers.get("Idempotency-Key") or "")
        if at.takes(step, gap=False):
            assert at.crash is not None
            self._line("cut", run, step, int(at.crash.fraction * TOKENS))
            return self._kill(run, at, step)
        self._line("served", run, step, TOKENS)
        return 200, {"step": step, "text": f"what to do in step {step}"}

    def _write(self, run: str, at: Place, step: int, body: Json, key: str) -> tuple[int, Json] | None:
        with at.lock:
            known = [r for k, r in at.written[step] if key and k == key and at.offers == "keys"]
            receipt = known[0] if known else {"receipt": f"{run}/{step}/{len(at.written[step]) + 1}"}
            if not known:
                at.written[step].append((key or str(body.get("reference", "")), receipt))
        self._line("repeated" if known else "performed", run, step, 0, key)
        return self._kill(run, at, step) if at.takes(step, gap=True) else (200, receipt)

    def _kill(self, run: str, at: Place, step: int) -> None:
        if not at.known.wait(30):
            raise TimeoutError("nobody has said which process is to be killed")
        self._line("killed", run, step, at.victim)
        os.kill(at.victim, signal.SIGKILL)

    def _line(self, what: str, run: str, step: int, number: int, key: str = "") -> None:
        self.ledger.add(Line(what=what, name=f"{run}/{step}", at=time.time(), key=key, number=number))


@dataclass
class Cost:
    """What one run's crash cost, from the ledger alone."""

    redone: int = 0
    tokens: int = 0
    twice: bool = False
    lost: bool = False
    killed: int = 0


def costs(lines: list[Line], writes: tuple[int, ...]) -> dict[str, Cost]:
    """Each run's cost."""
    by_run: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_run[line.name.partition("/")[0]].append(line)
    found: dict[str, Cost] = {}
    for run, its in by_run.items():
        served = sum(line.what == "served" for line in its)
        cut = sum(line.number for line in its if line.what == "cut")
        done = Counter(int(line.name.partition("/")[2]) for line in its if line.what == "performed")
        found[run] = Cost(
            redone=served - STEPS,
            tokens=TOKENS * (served - STEPS) + cut,
            twice=any(count > 1 for count in done.values()),
            lost=any(not done[step] for step in writes),
            killed=sum(line.what == "killed" for line in its),
        )
    return found
