"""The agent as it is usually written, with the three usual kinds of memory.

Run as ``agents.plain none|turn|journal|keys``. The memory is a fair one: whatever it keeps is fsynced before the
next step, and a checkpoint replaces the old file in one move.
"""

import json
import os
import sys
from typing import Protocol

from .tools import ROUTES, TURNS, Json, answered, ask_model, asked_for, die_after, opening, use


class Memory(Protocol):
    """What a policy keeps between lives. Steps are numbered: a turn's model call is odd, its tool call even."""

    def recall(self, step: int) -> Json | None:
        """The kept result of a step, or None when it has to be done."""
        ...

    def keep(self, step: int, result: Json) -> None:
        """Takes the result of a step that has just been done."""
        ...

    def end_turn(self) -> None:
        """Says that a turn is over."""
        ...


class Nothing:
    """Keeps nothing."""

    def recall(self, step: int) -> Json | None:
        return None

    def keep(self, step: int, result: Json) -> None:
        pass

    def end_turn(self) -> None:
        pass


class Checkpoint:
    """Keeps finished turns: everything so far is written when a turn ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._results: dict[str, Json] = {}
        if os.path.exists(path):
            with open(path) as file:
                self._results = json.load(file)

    def recall(self, step: int) -> Json | None:
        return self._results.get(str(step))

    def keep(self, step: int, result: Json) -> None:
        self._results[str(step)] = result

    def end_turn(self) -> None:
        with open(f"{self._path}.draft", "w") as file:
            json.dump(self._results, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self._path}.draft", self._path)


class Journal:
    """Keeps finished steps: one line each, fsynced before the step's result is used."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a+")  # noqa: SIM115 -- open for as long as the agent lives
        self._file.seek(0)
        entries = [json.loads(line) for line in self._file]
        self._results: dict[int, Json] = {entry["step"]: entry["result"] for entry in entries}

    def recall(self, step: int) -> Json | None:
        return self._results.get(step)

    def keep(self, step: int, result: Json) -> None:
        self._file.write(json.dumps({"step": step, "result": result}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def end_turn(self) -> None:
        pass


def respond(incident: str, memory: Memory, *, sends_keys: bool) -> None:
    """Handles the incident, five turns of model call and tool call."""
    messages = opening(incident)
    for step in range(1, 2 * TURNS, 2):
        completion = memory.recall(step)
        if completion is None:
            completion = ask_model(messages)
            memory.keep(step, completion)
        die_after(step)
        result = memory.recall(step + 1)
        if result is None:
            tool, arguments = asked_for(completion)
            is_write = ROUTES[tool][0] == "POST"
            headers = {"idempotency-key": f"{incident}:{step + 1}"} if sends_keys and is_write else {}
            result = use(tool, arguments, headers=headers)
            memory.keep(step + 1, result)
        die_after(step + 1)
        messages += answered(completion, result)
        memory.end_turn()


def choose_memory(policy: str) -> Memory:
    """The memory that a policy stands for."""
    kept = os.path.join(os.environ["SUREFOOT_DEMO_STATE"], "kept.json")
    match policy:
        case "none":
            return Nothing()
        case "turn":
            return Checkpoint(kept)
        case "journal" | "keys":
            return Journal(kept)
        case _:
            raise SystemExit(f"expected none, turn, journal or keys; got {policy!r}")


if __name__ == "__main__":
    respond(os.environ["SUREFOOT_DEMO_RUN"], choose_memory(sys.argv[1]), sends_keys=sys.argv[1] == "keys")
