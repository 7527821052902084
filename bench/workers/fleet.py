"""Runs that several processes share through a queue: what a step notes, and the three parts that processes play.

Everything is measured from the notes: each worker appends one line to a file of its own when a step's body is entered.
All clocks are the machine's monotonic one, so that lines of several processes can be compared.
"""

import argparse
import os
import random
import time
from typing import Any

from protocol import VALUE, Engine

PAUSE_SECONDS = (0.08, 0.22)
GATE_SECONDS = 0.001
notes = -1


def note(name: str, number: int) -> dict[str, str]:
    """A step's body: says that it was entered, by which run and where."""
    os.write(notes, f"{time.monotonic():.6f} {name} {number}\n".encode())
    return VALUE


def fill(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Put `--runs` runs of `--n` steps into the queue."""
    started = time.perf_counter()
    for number in range(args.runs):
        engine.enqueue(f"run-{number}", args.n, args.seconds)
    return {"runs": args.runs, "enqueue_us": (time.perf_counter() - started) / args.runs * 1e6}


def serve(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """A worker: ready, then waits at the gate with the others, then works until it is killed."""
    global notes
    notes = os.open(f"{args.dir}/notes-{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    open(f"{args.dir}/ready-{os.getpid()}", "w").close()
    while not os.path.exists(f"{args.dir}/go"):
        time.sleep(GATE_SECONDS)
    engine.serve()
    return {}


def ask(engine: Engine, args: argparse.Namespace) -> dict[str, Any]:
    """Put one run at a time into the queue of an idle fleet, at moments that no poll can be in step with."""
    chance = random.Random(args.runs)
    engine.enqueue("first", 1, 0.0)
    asked: dict[str, float] = {}
    for number in range(args.runs):
        time.sleep(chance.uniform(*PAUSE_SECONDS))
        asked[f"ask-{number}"] = time.monotonic()
        engine.enqueue(f"ask-{number}", 1, 0.0)
    return {"asked": asked}


FLEET_WORKS = {"fill": fill, "serve": serve, "ask": ask}
