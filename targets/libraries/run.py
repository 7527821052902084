"""Each library and Surefoot: a clean run, and one killed in the gap of the charge, at three kinds of shop."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from surefoot.testing.models import ModelServer
from targets.bench import Bench
from targets.results import Row, Verdict
from targets.shop import Shop, Strike
from targets.supervise import Lives, supervise

LIBRARIES = {
    "exactly-once": "exactly-once",
    "agent-once": "agent-once",
    "airlock": "airlock-sdk",
    "chowki": "chowki",
    "durabl": "durabl",
    "surefoot": "Surefoot",
}
WAYS = {"opaque": "the shop knows no keys", "keyed": "the shop honours keys", "lookup": "the shop can be asked"}
NO_LOOKUP = ("chowki", "durabl")
"""Libraries that cannot ask a receiver."""
TRIES = 3
ANSWER = "order complete"


@dataclass(frozen=True, kw_only=True)
class Seen:
    lives: Lives
    happened: dict[str, int]
    calls: int
    answer: str
    words: str

    @property
    def counts(self) -> str:
        return "/".join(str(self.happened.get(op, 0)) for op in ("reserve", "charge", "confirm"))


def measure(bench: Bench) -> Iterator[Row]:
    """A line of the table per fault and shop, a column per library."""
    for library in LIBRARIES:
        yield judged(library, "control", [one(bench, library, "keyed", False, n) for n in range(1, TRIES + 1)])
    for way, shop in WAYS.items():
        for library in LIBRARIES:
            if way == "lookup" and library in NO_LOOKUP:
                continue
            seen = [one(bench, library, way, True, number) for number in range(1, TRIES + 1)]
            yield judged(library, f"killed in the gap, {shop}", seen)


def one(bench: Bench, library: str, way: str, struck: bool, number: int) -> Seen:
    folder = bench.world(f"{library}-{way}-{'gap' if struck else 'control'}-{number}")
    with (
        ModelServer(record=folder / "paid.jsonl") as models,
        Shop(
            folder / "ledger.jsonl", honours_keys=way == "keyed", strikes=[Strike("charge")] if struck else []
        ) as shop,
    ):
        env = {
            "LIBRARY": library,
            "WAY": way,
            "WORLD": str(folder),
            "ARM": "published",
            "ORDER": f"order-{number}",
            "MODEL": models.url,
            "SHOP": shop.base,
            "OUT": str(folder / "out.json"),
            "DB": str(folder / "surefoot.db"),
        }
        program = "agent_surefoot.py" if library == "surefoot" else "agent_published.py"
        lives = supervise([bench.python(), bench.file(program)], folder=folder, env=env, born=shop.name_victim)
        happened, calls = shop.happened(), len(models.paid())
    out = folder / "out.json"
    answer = json.loads(out.read_text())["answer"] if out.exists() else ""
    return Seen(lives=lives, happened=happened, calls=calls, answer=answer, words=lives.words[-1][-800:])


def verdict_of(seen: Seen) -> Verdict:
    if max(seen.happened.values(), default=0) > 1:
        return "twice"
    if seen.lives.waits:
        return "told"
    if not seen.lives.finished:
        return "stuck"
    if seen.answer != ANSWER:
        return "wrong"
    return "once" if seen.counts == "1/1/1" else "lost"


WORST: tuple[Verdict, ...] = ("twice", "wrong", "lost", "stuck", "told", "once")


def judged(library: str, row: str, seen: list[Seen]) -> Row:
    verdicts = [verdict_of(each) for each in seen]
    worst = min(verdicts, key=WORST.index)
    struck = row != "control"
    shown = Counter(f"{each.counts}, {each.calls} calls" for each in seen)
    why = "" if worst in ("once", "told") else seen[verdicts.index(worst)].words.strip().splitlines()[-1:]
    return Row(
        row=row,
        arm=LIBRARIES[library],
        seen="; ".join(f"{text}{'' if k == len(seen) else f' ({k}x)'}" for text, k in shown.most_common()),
        verdict=worst,
        ours=library == "surefoot",
        tries=len(seen),
        good=sum(verdict in ("once", "told") for verdict in verdicts),
        fault="kill" if struck else "none",
        asked=len(seen) if struck else 0,
        done=sum(min(each.lives.killed, 1) for each in seen) if struck else 0,
        ends=dict(Counter(str(end) for each in seen for end in each.lives.ends)),
        why="".join(why)[:300],
    )
