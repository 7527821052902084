"""The same agent on Surefoot: the model call and the reads are steps, the writes are effects.

Run as ``agents.durable keyed|lookup|opaque``. The three differ in what the receiver promises about duplicates, and
in nothing else. There is no recovery code: starting it again resumes it.
"""

import os
import sys
from datetime import timedelta

from surefoot import Attempt, RunWaiting, Surefoot, effect, keyed, lookup, opaque, step, workflow

from .tools import TURNS, Json, answered, ask_model, asked_for, die_after, look_up, opening, use

WAITING_EXIT = 75

OFFER = sys.argv[1]
CONTRACT = {
    "keyed": keyed(window=timedelta(hours=24)),
    "lookup": lookup(lag=timedelta(seconds=0.1)),
    "opaque": opaque(),
}[OFFER]
# A lookup's "absent" counts only when the attempt before it can no longer arrive, so a short timeout is a short wait.
TIMEOUT_SECONDS = 0.5 if OFFER == "lookup" else 10.0


@step
def think(messages: list[Json]) -> Json:
    """Asks the model; paid for once."""
    return ask_model(messages)


@step
def read(tool: str, arguments: Json) -> Json:
    """Reads logs or metrics."""
    return use(tool, arguments)


def send(tool: str, attempt: Attempt, arguments: Json) -> Json:
    """Makes one attempt at a write, with the key where the receiver wants it and as a reference to look for."""
    request = {**arguments, "reference": attempt.key}
    return use(tool, request, headers=attempt.headers, timeout=attempt.timeout)


@effect(CONTRACT, timeout=TIMEOUT_SECONDS)
def open_ticket(attempt: Attempt, arguments: Json) -> Json:
    """Opens the incident's ticket."""
    return send("open_ticket", attempt, arguments)


@effect(CONTRACT, timeout=TIMEOUT_SECONDS)
def page_on_call(attempt: Attempt, arguments: Json) -> Json:
    """Wakes somebody up."""
    return send("page_on_call", attempt, arguments)


@effect(CONTRACT, timeout=TIMEOUT_SECONDS)
def post_status(attempt: Attempt, arguments: Json) -> Json:
    """Tells the public."""
    return send("post_status", attempt, arguments)


def find(tool: str, attempt: Attempt) -> Json | None:
    """Looks for what a write in doubt may have left behind; the receipt, or None."""
    found = look_up(tool, attempt.key)
    return found[0] if found else None


if OFFER == "lookup":

    @open_ticket.lookup
    def _(attempt: Attempt, arguments: Json) -> Json | None:
        return find("open_ticket", attempt)

    @page_on_call.lookup
    def _(attempt: Attempt, arguments: Json) -> Json | None:
        return find("page_on_call", attempt)

    @post_status.lookup
    def _(attempt: Attempt, arguments: Json) -> Json | None:
        return find("post_status", attempt)


WRITES = {"open_ticket": open_ticket, "page_on_call": page_on_call, "post_status": post_status}


@workflow
def respond(incident: str) -> list[Json]:
    """Handles the incident, five turns of model call and tool call; returns what the tools gave."""
    messages = opening(incident)
    results: list[Json] = []
    for number in range(1, 2 * TURNS, 2):
        completion = think(messages)
        die_after(number)
        tool, arguments = asked_for(completion)
        result = WRITES[tool](arguments) if tool in WRITES else read(tool, arguments)
        die_after(number + 1)
        messages = [*messages, *answered(completion, result)]
        results.append(result)
    return results


def main() -> int:
    """Runs one life of the agent; 75 means that a person has to say what happened."""
    incident = os.environ["SUREFOOT_DEMO_RUN"]
    with Surefoot(os.path.join(os.environ["SUREFOOT_DEMO_STATE"], "agents.db")) as surefoot:
        try:
            surefoot.run(respond, incident, id=incident)
        except RunWaiting as waiting:
            print(waiting)
            return WAITING_EXIT
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
