"""The agent's hands, shared by all its forms: the model, the refund desk and the mail server."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

Json = dict[str, Any]
CHARGE = "ch_7"
CODE = os.environ.get("CODE", "v1")
"""Which version of the program runs: v1, inserted, renamed, removed, other_amount."""
AMOUNT = 10
TIMEOUT = float(os.environ.get("TIMEOUT", "0.5"))
"""How long one request may take, in seconds."""


def assess(charge: str) -> Json:
    """The model call."""
    return _call("GET", f"/assess/{charge}", None, {}, 10)


def send(what: str, body: Json, *, headers: Mapping[str, str] | None = None, timeout: float = TIMEOUT) -> Json:
    """One request that changes the world."""
    return _call("POST", f"/do/{what}", body, headers or {}, timeout)


def find(what: str, key: str) -> Json | None:
    """What was done under this key."""
    found = _call("GET", f"/find/{what}?key={key}", None, {}, 5)["found"]
    return found[0] if found else None


def _call(method: str, path: str, body: Json | None, headers: Mapping[str, str], timeout: float) -> Json:
    content = None if body is None else json.dumps(body).encode()
    head = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(os.environ["OFFICE"] + path, content, head, method=method)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)


def say(assessment: Json, receipt: Json) -> None:
    """The agent's last words: what the harness checks."""
    print("ANSWER " + json.dumps([assessment.get("text"), receipt.get("receipt")]))


# --- the agent as a list of steps, for products that record each: `do(name, amount)` performs one, in their way

OFFER = os.environ.get("OFFER", "")
APPROVED_FIRST = "APPROVAL" in os.environ
ASKABLE = OFFER == "lookup" or "ASKABLE" in os.environ
REFUND = "reimburse" if CODE.startswith("renamed") else "refund"
Steps = Generator[tuple[str, int], Json, list[Json]]


def steps() -> Steps:
    """The steps of this version of the program, each with the amount that it is about."""
    if CODE == "inserted":
        yield "check_policy", 0
    assessment: Json = {"text": "low risk"} if CODE == "removed" else (yield "assess", 0)
    amount = AMOUNT
    if APPROVED_FIRST:
        yield "approval", AMOUNT
        amount = 9_999 if CODE == "other_amount" else AMOUNT
    receipt = yield REFUND, amount
    yield "mail", 0
    return [assessment, receipt]


def drive(do: Callable[[str, int], Json]) -> list[Json]:
    """Do each step; the answer."""
    plan, said = steps(), None
    try:
        while True:
            said = do(*plan.send(said))  # pyright: ignore[reportArgumentType]
    except StopIteration as over:
        return over.value


async def drive_async(do: Callable[[str, int], Awaitable[Json]]) -> list[Json]:
    """The same where a step is awaited."""
    plan, said = steps(), None
    while True:
        try:
            step = plan.send(said)  # pyright: ignore[reportArgumentType]
        except StopIteration as over:
            return over.value
        said = await do(*step)


def perform(name: str, amount: int, key: str) -> Json:
    """One step, with a key of this run: sent where keys are honoured, asked for first where the receiver can be."""
    match name:
        case "check_policy":
            return {"policy": "checked"}
        case "assess":
            return assess(CHARGE)
        case "refund" | "reimburse":
            return act("refund", {"charge": CHARGE, "amount": amount}, f"{key}:refund")
        case "mail":
            return act("mail", {"text": f"refund of {CHARGE}"}, f"{key}:mail")
        case _:
            raise ValueError(name)


def act(what: str, body: Json, key: str) -> Json:
    """Change the world, as safely as this receiver lets a program that has a stable key."""
    if ASKABLE and (known := find(what, key)) is not None:
        return known
    return send(what, body, headers={} if OFFER == "nothing" else {"Idempotency-Key": key})


def told(reason: object) -> None:
    """End: the product has given a reason to whoever waits for the run."""
    print(f"TOLD {type(reason).__name__}: {reason}", flush=True)
    os._exit(76)
