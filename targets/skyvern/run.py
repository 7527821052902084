"""The server and its client die together at a chosen request; both are started again, and the shop's ledger is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from world import Checkout, Server, plan

from surefoot.testing.models import Meets, ModelServer
from targets.bench import Bench
from targets.results import Row, Verdict
from targets.shop import BEFORE, EFFECT, Strike
from targets.supervise import TIMED_OUT, begin

CLIENT_SECONDS, GRACE_SECONDS = 420.0, 60.0
ROWS: dict[str, Strike | Meets | None] = {
    "control, nobody killed": None,
    "before: the order arrived, nothing was done": Strike("order", BEFORE),
    "gap: ordered, the answer never left": Strike("order", EFFECT),
    "the model answered, nobody got it": Meets(kill="after"),
}
ARMS = {
    "as published": ("agent_published.py", "plain"),
    "Surefoot's client, key honoured": ("agent_surefoot.py", "keyed"),
    "Surefoot's client, shop can be asked": ("agent_surefoot.py", "asked"),
}


def measure(bench: Bench) -> Iterator[Row]:
    """Every row, every arm."""
    for row, strike in ROWS.items():
        for arm, (file, form) in ARMS.items():
            if bench.wants(f"{arm}: {row}"):
                yield _measure(bench, row, strike, arm, file, form)


def _measure(bench: Bench, row: str, strike: Strike | Meets | None, arm: str, file: str, form: str) -> Row:
    world = bench.world(f"{form}-{row}")
    shop = Checkout(
        world / "shop.jsonl",
        honours_keys=form == "keyed",
        shows=form == "asked",
        strikes=[strike] if isinstance(strike, Strike) else [],
    )
    model = ModelServer(plan, record=world / "model.jsonl", strict=False)
    if isinstance(strike, Meets):
        model.at(1, strike)
    with shop, model:
        server = Server(bench.python(), world, model.url)
        try:
            victim = server.start()
            shop.name_victim(victim)
            model.victim.is_(victim)
            env = {
                "SKYVERN": f"http://127.0.0.1:{server.port}",
                "SKYVERN_KEY": server.key(),
                "CHECKOUT": shop.base + "/checkout",
                "SHOP": shop.base,
                "STATE": str(world),
            }
            ends, words = _lives(
                [sys.executable, bench.file(file), form], env, world, server, killed=strike is not None
            )
            left = _settled(server)
        finally:
            server.stop()
        return _row(row, strike, arm, shop.happened().get("order", 0), left, ends, words, server)


def _lives(
    command: list[str], env: dict[str, str], world: Path, server: Server, *, killed: bool
) -> tuple[list[int], str]:
    """The client until its server dies or it ends; if the server died, both again."""
    ends: list[int] = []
    for life in (1, 2) if killed else (1,):
        client = begin(command, env=env, output=world / f"client-{life}.txt")
        ends.append(_client(client, server))
        if life == 1 and killed:
            if not server.dead():
                break
            server.start()
    return ends, (world / f"client-{len(ends)}.txt").read_text()


def _client(client: subprocess.Popen[bytes], server: Server) -> int:
    """Its exit status; it dies with its server, as on one machine."""
    give_up = time.monotonic() + CLIENT_SECONDS
    while client.poll() is None and time.monotonic() < give_up and not server.dead():
        time.sleep(0.2)
    if client.poll() is None:
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()
        return -signal.SIGKILL if server.dead() else TIMED_OUT
    return client.returncode


def _settled(server: Server) -> list[str]:
    """What Skyvern says of its tasks, after a minute in which it may still bring one to an end."""
    give_up = time.monotonic() + GRACE_SECONDS
    while "running" in (said := server.tasks()) and time.monotonic() < give_up:
        time.sleep(1)
    return said


def _row(
    row: str, strike: object, arm: str, orders: int, left: list[str], ends: list[int], words: str, server: Server
) -> Row:
    said_completed = "SAID completed" in words
    open_tasks = [status for status in left if status in ("running", "created", "queued")]
    verdict: Verdict = "once" if said_completed else "wrong"
    why = "" if said_completed else f"the client ended with {ends[-1]}: {words.strip()[-200:]}"
    if orders > 1:
        verdict = "twice"
    elif orders < 1:
        verdict = "lost"
    elif open_tasks:
        verdict, why = "stuck", "Skyvern still calls the first task running, and nobody runs it"
    if ends[-1] == 75:
        verdict = "told"
    every_end = [*server.ends, *ends]
    return Row(
        row=row,
        arm=arm,
        ours="Surefoot" in arm,
        seen=f"{orders}; {', '.join(left)}",
        verdict=verdict,
        good=int(verdict in ("once", "told")),
        fault="kill" if strike is not None else "none",
        asked=int(strike is not None),
        done=int(server.ends[:1] == [-signal.SIGKILL]),  # its client is killed too, or was refused and ended first
        ends={str(end): every_end.count(end) for end in sorted(set(every_end))},
        counts={"orders": orders, "tasks": len(left), "tasks_left_running": len(open_tasks)},
        why=why,
    )
