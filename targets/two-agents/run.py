"""Both at once, and the first one killed around its refund while the second one comes along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from targets.bench import Bench
from targets.person import SUREFOOT
from targets.results import Row, Verdict
from targets.shop import BEFORE, EFFECT, Json, Shop, Strike
from targets.supervise import Lives, begin, end

ARMS = {
    "key of the arguments": ("agent_published.py", "arguments"),
    "key of the ticket": ("agent_published.py", "ticket"),
    "Surefoot, key honoured": ("agent_surefoot.py", "keyed"),
    "Surefoot, can only be asked": ("agent_surefoot.py", "lookup"),
}
ROWS: dict[str, tuple[Strike, ...]] = {
    "both at once": (),
    "the first is killed before its refund, the second comes, the first restarts": (Strike("refund", BEFORE),),
    "the first is killed after its refund, the second comes, the first restarts": (Strike("refund", EFFECT),),
}


class Desk(Shop):
    """Honours keys, and never compares bodies: a repeat gets the first receipt."""

    def act(self, name: str, body: Json, key: str) -> tuple[int, Json]:
        """One refund a key."""
        first = next((line for line in self.lines("performed", name) if key and line.key == key), None)
        same = json.loads(first.body) if first is not None and self._honours_keys else body
        return super().act(name, same, key)


def measure(bench: Bench) -> Iterator[Row]:
    """Every arm, every row."""
    for row, strikes in ROWS.items():
        for arm, (file, form) in ARMS.items() if bench.wants(row) else ():
            yield _measure(bench, row, strikes, arm, file, form)


def _measure(bench: Bench, row: str, strikes: tuple[Strike, ...], arm: str, file: str, form: str) -> Row:
    world = bench.world(f"{row}-{form}")
    with Desk(world / "ledger.jsonl", honours_keys=form != "lookup", strikes=strikes) as desk:
        command = [sys.executable, bench.file(file), form]
        lives = _together(command, world, desk) if not strikes else _one_after_another(command, world, desk)
        paid = [json.loads(line.body)["amount"] for line in desk.lines("performed")]
    said = [int(line[5:]) for words in lives.words for line in words.splitlines() if line.startswith("SAID ")]
    told = _proposals(world / "agents.db") == {35, 40}
    verdict, why = _judge(paid, said, told)
    return Row(
        row=row,
        arm=arm,
        ours=arm.startswith("Surefoot"),
        seen=f"paid {_listed(paid)}; said {_listed(sorted(set(said)))}; {'both told' if told else 'nobody told'}",
        verdict=verdict,
        good=int(verdict in ("once", "told")),
        fault="kill" if strikes else "none",
        asked=len(strikes),
        done=lives.killed,
        ends=lives.counted(),
        counts={"refunds": len(paid), "paid": sum(paid)},
        why=why,
    )


def _judge(paid: list[int], said: list[int], told: bool) -> tuple[Verdict, str]:
    if len(paid) > 1:
        return "twice", ""
    if not paid:
        return "lost", "nothing was paid"
    if wrong := sorted(set(said) - set(paid)):
        return "wrong", f"an agent said that it refunded {_listed(wrong)}, and {_listed(paid)} was paid"
    return ("told", "") if told else ("wrong", "the other proposal is nowhere to be read")


def _listed(amounts: list[int]) -> str:
    return " and ".join(map(str, amounts)) or "nothing"


def _start(command: list[str], world: Path, desk: Desk, amount: int, number: int) -> subprocess.Popen[bytes]:
    env = {"AMOUNT": str(amount), "DESK": desk.base, "STATE": str(world)}
    return begin(command, env=env, output=world / f"life-{number}.txt")


def _together(command: list[str], world: Path, desk: Desk) -> Lives:
    both = [_start(command, world, desk, amount, number) for number, amount in enumerate((40, 35))]
    return _lives([end(process, 40) for process in both], world)


def _one_after_another(command: list[str], world: Path, desk: Desk) -> Lives:
    """40 is killed, 35 runs to its end, 40 is started again."""
    ends: list[int] = []
    for number, amount in enumerate((40, 35, 40)):
        process = _start(command, world, desk, amount, number)
        if number == 0:
            desk.name_victim(process.pid)
        ends.append(end(process, 40))
    return _lives(ends, world)


def _lives(ends: list[int], world: Path) -> Lives:
    return Lives(ends=ends, words=[(world / f"life-{number}.txt").read_text() for number in range(len(ends))])


def _proposals(store: Path) -> set[int]:
    """The amounts that `surefoot doubts` shows beside each other."""
    if not store.exists():
        return set()
    shown = subprocess.run(
        [*SUREFOOT, "--db", os.fspath(store), "doubts", "--json"], capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(shown.stdout)["doubts"]
    return {proposal["request"]["amount"] for doubt in found for proposal in doubt["proposals"]}
