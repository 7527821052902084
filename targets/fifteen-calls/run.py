"""Killed at the k-th call; counted at the model's endpoint, which writes each paid call down before it answers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.testing.ledger import Line
from surefoot.testing.models import Ask, ModelServer, Say
from targets.bench import Bench
from targets.person import SUREFOOT
from targets.results import Row, Verdict
from targets.supervise import Lives, supervise

CALLS, ANSWER, TRIES = 15, "the right answer", 3
ROUNDS = ((1,), (2, 3, 4), (5, 6, 7), (8, 9, 10), (11, 12, 13), (14,), (15,))
"""Which calls are under way together; the next round begins when the last one is answered."""
ARMS = ("published", "Surefoot, HTTP layer", "Surefoot, proxy")


def plan(ask: Ask) -> Say:
    """Decides from the request alone."""
    return Say(text=ANSWER if ask.text == "answer" else f"about {ask.text}")


class Killer:
    """Kills the agent when call `at` was paid; the proxy, which asked for it, lives."""

    def __init__(self, at: int, *, asker_lives: bool) -> None:
        self._at, self._asker_lives, self.victim, self.struck = at, asker_lives, 0, False

    def born(self, pid: int) -> None:
        """The agent's process group."""
        self.victim = pid

    def __call__(self, when: str, number: int, connection: Any) -> bool:
        if when != "after" or number != self._at or self.struck:
            return False
        self.struck = True
        os.killpg(self.victim, signal.SIGKILL)
        return not self._asker_lives


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one try showed."""

    lives: Lives
    paid: int
    right: bool
    needless: int
    """Questions paid for again though they had been answered: of another round than the one that was under way."""


def measure(bench: Bench) -> Iterator[Row]:
    """A control, then the kills; the arms of a row side by side, each with a model of its own."""
    for at in range(CALLS + 1):
        with ThreadPoolExecutor(len(ARMS)) as pool:
            yield from pool.map(lambda arm, at=at: _measure(bench, at, arm), filter(bench.wants, ARMS))


def _measure(bench: Bench, at: int, arm: str) -> Row:
    seen = [_one(bench, at, arm, number) for number in range(1, TRIES + 1)]
    verdicts = [_verdict(each, is_behind=arm.endswith("proxy")) for each in seen]
    ends = Counter(str(end) for each in seen for end in each.lives.ends)
    shown = Counter(each.paid for each in seen)
    return Row(
        row=f"killed at call {at}" if at else "nothing is killed",
        arm=arm,
        ours=arm != "published",
        seen="; ".join(f"{paid}" + (f" ({k}x)" if k < TRIES else "") for paid, k in sorted(shown.items())),
        verdict=max(verdicts, key=("once", "twice", "wrong").index),
        tries=TRIES,
        good=verdicts.count("once"),
        fault="kill" if at else "none",
        asked=TRIES if at else 0,
        done=sum(each.lives.killed for each in seen),
        ends=dict(ends),
        counts={
            "extra, most": max(each.paid for each in seen) - CALLS,
            "answered and paid again, most": max(each.needless for each in seen),
        },
    )


def _verdict(seen: Seen, *, is_behind: bool) -> Verdict:
    if not seen.right:
        return "wrong"
    return "twice" if seen.needless or (is_behind and seen.paid > CALLS) else "once"


def _one(bench: Bench, at: int, arm: str, number: int) -> Seen:
    world = bench.world(f"{arm}-{at}-{number}")
    is_behind = arm.endswith("proxy")
    killer = Killer(at, asker_lives=is_behind)
    with ExitStack() as stack:
        models = stack.enter_context(ModelServer(plan, record=world / "paid.jsonl", boundary=killer))
        url = stack.enter_context(_proxy(world, models.url)) if is_behind else f"{models.url}/v1"
        file = "agent_surefoot.py" if arm == "Surefoot, HTTP layer" else "agent_published.py"
        env = {"MODEL_URL": url, "STATE": str(world)}
        lives = supervise([bench.python(), bench.file(file)], folder=world, env=env, born=killer.born, lives=3)
        paid = models.paid()
    right = lives.finished and f"ANSWER {CALLS} {ANSWER}" in lives.words[-1]
    return Seen(lives=lives, paid=len(paid), right=right, needless=_needless(paid, at))


def _needless(paid: list[Line], at: int) -> int:
    """Calls paid again that were not under way when the agent died: then, only calls of its round were."""
    first: dict[str, int] = {}
    for line in sorted(paid, key=lambda line: line.number):
        first.setdefault(line.key, line.number)
    under_way = next((calls for calls in ROUNDS if at in calls), ())
    again = Counter(line.key for line in paid)
    return sum(count - 1 - (first[key] in under_way) for key, count in again.items() if count > 1)


@contextmanager
def _proxy(world: Path, models: str) -> Iterator[str]:
    """`surefoot proxy`, told nothing of the agent: each start of it is another process."""
    command = [*SUREFOOT, "proxy", "--port", "0", "--run", "one", "--db", str(world / "proxy.db")]
    process = subprocess.Popen([*command, "--upstream", f"openai={models}"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().rpartition(" ")[2].strip()
    try:
        yield f"{url}/openai/v1"
    finally:
        process.terminate()
        process.wait(60)
