"""A thousand crashes for each arm, the same ones, by a fork server: counted in the ledger, beside the closed form."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from calls import WRITES
from desk import Cost, Crash, Place, Services, costs
from expected import draw, moments

from surefoot.testing.forkserver import ForkServer
from targets.bench import Bench
from targets.results import Row, Verdict

SEED, RUNS, LIVES_MAX = "support-2026-11-30", 1_000, 4
ARMS = {
    "restart": ("agent_published.py", "restart", "nothing"),
    "checkpoint": ("agent_published.py", "checkpoint", "nothing"),
    "checkpoint + keys": ("agent_published.py", "keys", "keys"),
    "Surefoot, keyed": ("agent_surefoot.py", "keyed", "keys"),
    "Surefoot, lookup": ("agent_surefoot.py", "lookup", "lookup"),
}
TITLE = "{count:,} crashes, seeded"


def measure(bench: Bench) -> Iterator[Row]:
    """One row an arm, and one control run an arm."""
    for arm, (file, form, offers) in ARMS.items():
        yield measure_arm(bench, arm, file, form, offers, [None])
        yield measure_arm(bench, arm, file, form, offers, draw(SEED, RUNS))


def measure_arm(bench: Bench, arm: str, file: str, form: str, offers: str, crashes: Sequence[Crash | None]) -> Row:
    """All runs of an arm."""
    folder = bench.world(f"{form}-{len(crashes)}-{offers}")
    os.environ["PYTHONPATH"] = str(bench.target.folder)
    with Services(folder / "ledger.jsonl") as services, ForkServer(bench.file(file)) as server:

        def one(number: int) -> list[int]:
            return _run(services, server, folder, f"run-{number}", crashes[number], form, offers)

        with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
            ends = list(pool.map(one, range(len(crashes))))
        found = costs(services.ledger.lines(), WRITES)
    return _row(arm, form, list(crashes), ends, [found[f"run-{number}"] for number in range(len(crashes))])


def _run(
    services: Services, server: ForkServer, folder: Path, run: str, crash: Crash | None, form: str, offers: str
) -> list[int]:
    """One run, started again until it exits with 0; how its lives ended."""
    place = services.places[run] = Place(crash=crash, offers=offers)
    home = folder / run
    home.mkdir()
    ends: list[int] = []
    while len(ends) < LIVES_MAX and (not ends or ends[-1] != 0):
        child = server.start("life", form, f"{services.base.removeprefix('http://')}/{run}", str(home))
        if not ends:
            place.name_victim(child.pid)
        ends.append(child.join())
    shutil.rmtree(home)
    return ends


def cell(counts: dict[str, float]) -> str:
    """What was counted, and in brackets what the closed form expects."""
    seen = _three(counts["redone"], counts["tokens"], counts["twice"])
    if "redone_expected" not in counts:
        return seen
    expected = _three(counts["redone_expected"], counts["tokens_expected"], counts["twice_expected"])
    return f"{seen} (expected {expected})"


def _three(redone: float, tokens: float, twice: float) -> str:
    return f"{redone:.2f} / {tokens:,.0f} / {100 * twice:.1f}%"


def _row(arm: str, form: str, crashes: list[Crash | None], ends: list[list[int]], found: list[Cost]) -> Row:
    count, control = len(crashes), crashes[0] is None
    means = {
        "redone": sum(cost.redone for cost in found) / count,
        "tokens": sum(cost.tokens for cost in found) / count,
        "twice": sum(cost.twice for cost in found) / count,
    }
    counts: dict[str, float] = {name: round(mean, 4) for name, mean in means.items()}
    if not control:
        for name, (mean, deviation) in moments(form).items():
            counts[f"{name}_expected"] = round(mean, 4)
            counts[f"{name}_z"] = round((means[name] - mean) / (deviation / count**0.5), 2) if deviation else 0.0
    unfinished = sum(each[-1] != 0 for each in ends)
    lost = sum(cost.lost for cost in found)
    verdict: Verdict = "twice" if means["twice"] else "lost" if lost else "stuck" if unfinished else "once"
    bad = sum(cost.twice or cost.lost or each[-1] != 0 for cost, each in zip(found, ends, strict=True))
    statuses = Counter(str(status) for each in ends for status in each)
    killed = sum(each[0] == -9 and cost.killed == 1 for each, cost in zip(ends, found, strict=True))
    return Row(
        row="control, nobody killed" if control else TITLE.format(count=count),
        arm=arm,
        ours=arm.startswith("Surefoot"),
        seen=cell(counts),
        verdict=verdict,
        tries=count,
        good=count - bad,
        fault="none" if control else "kill",
        asked=0 if control else count,
        done=0 if control else killed,
        ends=dict(statuses),
        counts=counts,
    )
