"""Killed at the k-th call; counted at the model's endpoint, which writes each paid call down before it answers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from surefoot.testing.models import Ask, ModelServer, Say
from targets.bench import Bench
from targets.person import SUREFOOT
from targets.results import Row, Verdict
from targets.supervise import supervise

CALLS, BESIDE, ANSWER = 15, 3, "the right answer"
KILLED_AT = (1, 7, 9, 15)
"""The first, the last, and the two that were published; range(1, 16) is each of them, in three times the time."""
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


def measure(bench: Bench) -> Iterator[Row]:
    """A control, then the kills; the arms of a row side by side, each with a model of its own."""
    for at in (0, *KILLED_AT):
        with ThreadPoolExecutor(len(ARMS)) as pool:
            yield from pool.map(lambda arm, at=at: _measure(bench, at, arm), filter(bench.wants, ARMS))


def _measure(bench: Bench, at: int, arm: str) -> Row:
    world = bench.world(f"{arm}-{at}")
    is_behind, is_ours = arm.endswith("proxy"), arm != "published"
    killer = Killer(at, asker_lives=is_behind)
    with ExitStack() as stack:
        models = stack.enter_context(ModelServer(plan, record=world / "paid.jsonl", boundary=killer))
        url = stack.enter_context(_proxy(world, models.url)) if is_behind else f"{models.url}/v1"
        file = "agent_surefoot.py" if is_ours and not is_behind else "agent_published.py"
        env = {"MODEL_URL": url, "STATE": str(world)}
        lives = supervise([bench.python(), bench.file(file)], folder=world, env=env, born=killer.born, lives=3)
        paid = len(models.paid())
    right = lives.finished and f"ANSWER {CALLS} {ANSWER}" in lives.words[-1]
    allowed = CALLS + (0 if not at or is_behind else BESIDE)
    verdict: Verdict = "wrong" if not right else "twice" if paid > allowed else "once"
    return Row(
        row=f"killed at call {at}" if at else "nothing is killed",
        arm=arm,
        ours=is_ours,
        seen=f"{paid}",
        verdict=verdict,
        good=int(verdict == "once"),
        fault="kill" if at else "none",
        asked=int(bool(at)),
        done=lives.killed,
        ends=lives.counted(),
        counts={"paid": paid, "extra": paid - CALLS},
    )


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
