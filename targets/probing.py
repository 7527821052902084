"""Probes: one fault a row, done to a refund agent, judged by the ledger and by its last words.

The same rows for hand-written programs, engines, libraries and Surefoot; an `Arm` is whoever is probed.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from targets.bench import Bench
from targets.person import approve_all, resolve_by_ledger
from targets.results import Row, Verdict
from targets.shop import BEFORE, EFFECT, Json, Shop, Strike
from targets.supervise import WAITING_EXIT, Lives, begin, end, supervise

TOLD_EXIT = 76
GAP = (Strike("refund", EFFECT),)
AT_THE_MAIL = (Strike("mail", BEFORE),)
AT_THE_REFUND = (Strike("refund", BEFORE),)
OURS = "Surefoot"


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One row: what the receiver offers, what is done, and which code the second life runs."""

    row: str
    offer: str
    strikes: tuple[Strike, ...] = ()
    first: str = "v1"
    then: str = "v1"
    wait: float = 0.0
    lag: float = 0.0
    window: float = 86_400.0
    late: float = 0.6
    rivals: bool = False
    env: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def askable(self) -> bool:
        return self.offer == "lookup" or "ASKABLE" in self.env

    @property
    def fault(self) -> str:
        what = {strike.what for strike in self.strikes}
        return "none" if not what else "kill" if what == {"kill"} else " and ".join(sorted(what))


PROBES = (
    Probe(row="control, nothing happens; keys honoured", offer="keys"),
    Probe(row="control, nothing happens; can only be asked", offer="lookup"),
    Probe(row="killed in the gap; keys honoured", offer="keys", strikes=GAP),
    Probe(row="killed in the gap; can only be asked", offer="lookup", strikes=GAP),
    Probe(row="killed in the gap; nothing offered", offer="nothing", strikes=GAP),
    Probe(row="500 after acting; keys honoured", offer="keys", strikes=(Strike("refund", EFFECT, what="500"),)),
    Probe(row="500 after acting; can only be asked", offer="lookup", strikes=(Strike("refund", EFFECT, what="500"),)),
    Probe(row="500 after acting; nothing offered", offer="nothing", strikes=(Strike("refund", EFFECT, what="500"),)),
    Probe(
        row="time-out after acting; can only be asked",
        offer="lookup",
        strikes=(Strike("refund", EFFECT, what="timeout"),),
    ),
    Probe(
        row="reset after acting; can only be asked", offer="lookup", strikes=(Strike("refund", EFFECT, what="reset"),)
    ),
    Probe(
        row="acts 1.2 s later, the caller gave up at 0.5 s; can only be asked",
        offer="lookup",
        strikes=(Strike("refund", BEFORE, what="late"),),
        late=1.2,
        env={"LAG": "1.5"},
    ),
    Probe(
        row="look-up shows it 15 s later; killed in the gap", offer="lookup", strikes=GAP, lag=15.0, env={"LAG": "15"}
    ),
    Probe(
        row="key forgotten after 1 s, restarted after 1.5 s, cannot be asked",
        offer="keys",
        strikes=GAP,
        window=1.0,
        wait=1.5,
        env={"WINDOW": "1.0"},
    ),
    Probe(
        row="key forgotten after 1 s, restarted after 1.5 s, can be asked",
        offer="keys",
        strikes=GAP,
        window=1.0,
        wait=1.5,
        env={"WINDOW": "1.0", "ASKABLE": "1"},
    ),
    Probe(row="step inserted while a run was killed at the mail", offer="keys", strikes=AT_THE_MAIL, then="inserted"),
    Probe(row="effect renamed while a run was killed at the mail", offer="keys", strikes=AT_THE_MAIL, then="renamed"),
    Probe(
        row="effect renamed, formerly= said so; killed at the mail",
        offer="keys",
        strikes=AT_THE_MAIL,
        then="renamed, said",
    ),
    Probe(row="step removed while a run was killed at the refund", offer="keys", strikes=AT_THE_REFUND, then="removed"),
    Probe(
        row="approved 10, the next version executes 9,999; killed at the refund",
        offer="keys",
        strikes=AT_THE_REFUND,
        then="other_amount",
        env={"APPROVAL": "1"},
    ),
    Probe(row="approved 10, the code executes 9,999", offer="keys", first="other_amount", env={"APPROVAL": "1"}),
    Probe(
        row="second process started while the first one sends; can only be asked",
        offer="lookup",
        strikes=(Strike("refund", BEFORE, what="slow"),),
        late=15.0,
        rivals=True,
        env={"TIMEOUT": "20"},
    ),
    Probe(
        row="owner paused at the model call, another takes over, it wakes; can only be asked",
        offer="lookup",
        strikes=(Strike("assess", EFFECT, what="stop"),),
        late=0.1,
        rivals=True,
        env={"LEASE": "2"},
    ),
)


class Office(Shop):
    """The shop, and a model that assesses: `GET /assess/CHARGE`."""

    def serve(self, method: str, path: str, body: Json, headers: Any) -> tuple[int, Json | str] | None:
        """Answer a request."""
        if path.startswith("/assess/"):
            return self.answer("assess", self.arrive("assess"), lambda: (200, {"text": "low risk"}))
        return super().serve(method, path, body, headers)


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Who is probed. `place` tells a world's programs of their engine.

    `told` are words with which a product says in its log, and not to whoever waits, that a run cannot go on.
    """

    name: str
    command: tuple[str, ...]
    place: Callable[[Path], Mapping[str, str]] = lambda world: {}
    told: tuple[str, ...] = ()

    @property
    def ours(self) -> bool:
        return self.name == OURS


def measure_row(bench: Bench, probe: Probe, arm: Arm) -> Row:
    """One world."""
    world = bench.world(f"{probe.row}-{arm.name}")
    office = Office(
        world / "ledger.jsonl",
        honours_keys=probe.offer == "keys",
        shows=probe.askable,
        lag=probe.lag,
        late=probe.late,
        window=probe.window,
        strikes=probe.strikes,
    )
    with office:
        env = {
            **arm.place(world),
            **probe.env,
            "OFFER": probe.offer,
            "OFFICE": office.base,
            "STATE": str(world),
            "CODE": probe.first,
            "RIVALS": "1" if probe.rivals else "",
        }
        command = list(arm.command)
        lives = _rivals(command, env, world, office) if probe.rivals else _lives(command, env, world, office, probe)
        office.wait_for_late()
        return _row(probe, arm, office, lives)


def _lives(command: list[str], env: dict[str, str], world: Path, office: Office, probe: Probe) -> Lives:
    """The usual supervisor; whoever waits for a person is helped, and a later life may run newer code."""
    changing = dict(env)
    finance = threading.Thread(target=_finance, args=(world / "agents.db",), daemon=True)
    if "APPROVAL" in probe.env:
        finance.start()

    def again(so_far: Lives) -> bool:
        if so_far.waits:
            return resolve_by_ledger(world / "agents.db", office)
        if so_far.ends[-1] != -signal.SIGKILL:
            return False
        changing["CODE"] = probe.then
        time.sleep(probe.wait)
        return True

    return supervise(command, folder=world, env=changing, lives=5, seconds=60, born=office.name_victim, between=again)


def _finance(store: Path) -> None:
    """Whoever approves: as soon as the store asks for it; gone after a minute."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and not (store.exists() and approve_all(store)):
        time.sleep(0.3)


def _rivals(command: list[str], env: dict[str, str], world: Path, office: Office) -> Lives:
    """Two processes at once: the second starts when the first was struck; where that paused it, it then goes on."""
    first = begin(command, env={**env, "LIFE": "1"}, output=world / "life-1.txt")
    office.name_victim(first.pid)
    give_up = time.monotonic() + 20
    while not office.struck and time.monotonic() < give_up:
        time.sleep(0.01)
    second = begin(command, env={**env, "LIFE": "2"}, output=world / "life-2.txt")
    ends = [end(second, 40)]
    os.killpg(first.pid, signal.SIGCONT)
    ends.append(end(first, 40))
    return Lives(ends=ends, words=[(world / f"life-{n}.txt").read_text() for n in (1, 2)])


def _row(probe: Probe, arm: Arm, office: Office, lives: Lives) -> Row:
    happened = office.happened()
    seen = [happened.get(name, 0) for name in ("refund", "mail")]
    verdict, why = _judge(arm, office, lives, seen)
    asked = len(probe.strikes)
    parked = lives.ends.count(WAITING_EXIT)
    return Row(
        row=probe.row,
        arm=arm.name,
        ours=arm.ours,
        seen=f"{seen[0]}/{seen[1]}" + (", parked" if parked else ", stopped" if TOLD_EXIT in lives.ends else ""),
        verdict=verdict,
        good=int(verdict in ("once", "told")),
        fault=probe.fault,
        asked=asked,
        done=lives.killed if probe.fault == "kill" else len(office.struck),
        ends=lives.counted(),
        counts={"refund": seen[0], "mail": seen[1], "requests": len(office.requests)},
        why=why,
    )


def _judge(arm: Arm, office: Office, lives: Lives, seen: list[int]) -> tuple[Verdict, str]:
    amounts = [json.loads(line.body)["amount"] for line in office.lines("performed", "refund")]
    if any(amount != 10 for amount in amounts):
        return "wrong", f"10 was approved, {amounts} was paid out"
    if max(seen) > 1:
        return "twice", ""
    if TOLD_EXIT in lives.ends:
        return "told", ""
    if lives.ends[-1] == WAITING_EXIT:
        return "told", ""
    answers = [
        json.loads(line[7:]) for words in lives.words for line in words.splitlines() if line.startswith("ANSWER ")
    ]
    if not answers and any(word in words for word in arm.told for words in lives.words):
        return "told", ""
    if lives.ends[-1] != 0 and not answers:
        return "stuck", lives.words[-1].strip().splitlines()[-1][:160] if lives.words[-1].strip() else "no word"
    if min(seen) < 1:
        return "lost", "exit 0, and an effect never happened"
    receipt = f"receipt:refund:{office.lines('performed', 'refund')[0].number}"
    if any(answer != ["low risk", receipt] for answer in answers):
        return "wrong", f"its answer was {answers[-1]}"
    return ("told" if WAITING_EXIT in lives.ends else "once"), ""
