"""The twelve-step support agent as it is usually written: from the start, by checkpoint, by checkpoint with keys."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from calls import STEPS, WRITES, Desk


def life(say: Callable[[str], None], arm: str, place: str, folder: str) -> None:
    """One life; `arm` is restart, checkpoint or keys."""
    desk, kept = Desk(place), os.path.join(folder, "checkpoint.json")
    done = _load(kept) if arm != "restart" else 0
    for number in range(done + 1, STEPS + 1):
        desk.ask_model(number)
        if number in WRITES:
            key = {"Idempotency-Key": f"{folder}:{number}"} if arm == "keys" else None
            desk.write(number, headers=key)
        if arm != "restart":
            _save(kept, number)


def _load(path: str) -> int:
    try:
        with open(path) as file:
            return json.load(file)["done"]
    except FileNotFoundError:
        return 0


def _save(path: str, done: int) -> None:
    with open(path + ".draft", "w") as file:
        json.dump({"done": done}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".draft", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
