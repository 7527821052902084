"""The agent with one library around each operation, used as that library's own documentation says.

LIBRARY names it; WAY says what the receiver can do: `opaque` (nothing), `keyed` (it honours the key that is passed) or
`lookup` (it can be asked). 75 is the exit status of a run that a person has to help; what the library says is printed.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "engines" / "programs"))
import agent

LIBRARY, WAY, FOLDER = os.environ["LIBRARY"], os.environ["WAY"], Path(os.environ["WORLD"])
OPERATIONS = ("reserve", "charge", "confirm")
Perform = Callable[[str, str], str]


class ForAPerson(Exception):
    """The library stops here, and says so."""


def found(op: str, key: str) -> str | None:
    """What the shop shows under this key."""
    shown = agent.call(f"{agent.SHOP}/find/{op}?key={key}")["found"]
    return shown[0]["receipt"] if shown else None


def act(op: str, order: str, key: str | None) -> str:
    """One operation: the key goes where this receiver looks for it."""
    if WAY == "lookup":
        return agent.call(f"{agent.SHOP}/do/{op}", {"order": order, "reference": key})["receipt"]
    return agent.act(op, order, key or "" if WAY == "keyed" else "")


def loop(ask: Callable[[list], dict], perform: Perform) -> str:
    """Ask the model and do what it says until it is done."""
    messages = agent.first(agent.ORDER)
    while True:
        message = ask(messages)
        wanted = agent.wanted(message)
        if wanted is None:
            return message["content"]
        messages += agent.told(message, perform(wanted[0], agent.ORDER))


# --- exactly-once: claims a key, and quarantines one in flight; it retries at a keyed receiver, and asks where it can


def with_exactly_once() -> str:
    from exactly_once import (
        ProbeResult,
        QuarantinedError,
        Store,
        Verdict,
        auto_retry,
        check_then_decide,
        current_key,
        once,
    )

    store = Store.sqlite(str(FOLDER / "effects.db"))

    def made(op: str) -> Perform:
        def probe(key: str) -> ProbeResult:
            receipt = found(op, key)
            return ProbeResult(Verdict.COMMITTED, receipt) if receipt else ProbeResult(Verdict.NOT_COMMITTED)

        policies = {"keyed": auto_retry, "lookup": check_then_decide(probe)}
        more = {"policy": policies[WAY]} if WAY in policies else {}

        @once(store, key=lambda op, order: f"{op}-{order}", **more)
        def perform(op: str, order: str) -> str:
            return act(op, order, current_key())

        return perform

    guarded = {op: made(op) for op in OPERATIONS}
    try:
        return loop(agent.ask, lambda op, order: guarded[op](op, order))
    except QuarantinedError as error:
        raise ForAPerson(str(error)) from error


# --- agent-once: claims a key, and raises while it is pending; `verify` asks, also about a claim that is `stale`


def with_agent_once() -> str:
    from once import NOT_HAPPENED, Once
    from once.exceptions import EffectPending, EffectUnknown

    once = Once(str(FOLDER / "once.db"), stale_after=2.0, wait=4.0 if WAY == "lookup" else 0.0)

    def made(op: str) -> Perform:
        def verify(key: str, args: dict) -> object:
            return found(op, key) or NOT_HAPPENED

        more = {"verify": verify} if WAY == "lookup" else {}

        @once.tool(name=op, **more)
        def perform(order: str, idempotency_key: str | None = None) -> str:
            return act(op, order, idempotency_key)

        return perform

    guarded = {op: made(op) for op in OPERATIONS}
    try:
        with once.scope(agent.ORDER):
            return loop(agent.ask, lambda op, order: guarded[op](order))
    except (EffectPending, EffectUnknown) as error:
        raise ForAPerson(f"{type(error).__name__}: {error}") from error


# --- airlock: a ledger by key; its reconciler, at start-up, re-issues what is keyed and probes what can be verified


def with_airlock() -> str:
    import airlock
    from airlock import CommitWaitTimeout, Decision, Effect, Policy, Rule
    from airlock.reconcile import OnAbsent, reconcile_on_startup
    from airlock.store import from_url
    from airlock.types import Verification

    def made(op: str) -> Perform:
        def verify(order: str, **_: object) -> tuple:
            receipt = found(op, f"{op}-{order}")
            return (Verification.PRESENT, receipt) if receipt else (Verification.ABSENT, None)

        match WAY:
            case "keyed":
                effect = Effect(key_param="idempotency_key")
            case "lookup":
                effect = Effect(verify=verify)
            case _:
                effect = None

        @airlock.guard(f"shop.{op}", effect=effect)
        def perform(order: str, idempotency_key: str | None = None) -> str:
            return act(op, order, f"{op}-{order}" if WAY == "lookup" else idempotency_key)

        return perform

    guarded = {op: made(op) for op in OPERATIONS}
    store = from_url(f"sqlite:///{FOLDER / 'airlock.db'}")
    rule = Policy(rules=[Rule(match="shop.*", decision=Decision.AUTO)])
    airlock.init(store=store, policy=rule)
    if agent.LIFE > 1:
        report = reconcile_on_startup(store, older_than=timedelta(0), on_absent=OnAbsent.RETRY)
        print("reconciled:", report, flush=True)
    try:
        return loop(agent.ask, lambda op, order: guarded[op](order))
    except CommitWaitTimeout as error:
        raise ForAPerson(f"{type(error).__name__}: {error}") from error
    except airlock.errors.CommitFailed as error:
        raise ForAPerson(f"{type(error).__name__}: {error}") from error


# --- chowki: steps with their results; a step that is not idempotent-safe is claimed first, and an operator releases it


def with_chowki() -> str:
    import chowki

    chowki.configure(db_path=str(FOLDER / "chowki.db"), resume_secret=b"x" * 32)

    @chowki.step(idempotent=False)
    def ask(messages: list) -> dict:
        return agent.ask(messages)

    @chowki.step(idempotent=WAY != "keyed")
    def perform(op: str, order: str) -> str:
        return act(op, order, f"{op}-{order}")

    @chowki.workflow
    def checkout(order: str = "") -> str:
        return loop(ask, perform)

    try:
        if agent.LIFE == 1:
            return checkout(order=agent.ORDER, run_id="run-1")
        from chowki.config import get_engine
        from chowki.core.runner import recover_runs

        recover_runs(get_engine())
        return chowki.rerun("run-1")
    except chowki.ChowkiError as error:
        raise ForAPerson(f"{type(error).__name__}: {error}") from error


# --- durabl: a generator that yields steps; a tool is IDEMPOTENT, or AT_MOST_ONCE and then dead-lettered


def with_durabl() -> str:
    from durabl import ModelCall, Runtime, ToolCall, workflow
    from durabl.tools import ToolMode, tool

    @workflow
    def checkout(ctx, order):
        messages = agent.first(order)
        while True:
            message = yield ModelCall("next", params={"messages": list(messages)})
            wanted = agent.wanted(message)
            if wanted is None:
                return message["content"]
            op = wanted[0]
            receipt = yield ToolCall(op, {"order": order}, idempotency_key=f"{op}-{order}")
            messages += agent.told(message, receipt)

    def made(op: str):
        mode = ToolMode.IDEMPOTENT if WAY == "keyed" else ToolMode.AT_MOST_ONCE

        @tool(name=op, mode=mode)
        def perform(order: str) -> str:
            return act(op, order, f"{op}-{order}")

        return perform

    runtime = Runtime(
        db=str(FOLDER / "durabl.db"),
        llm=lambda prompt, messages: agent.ask(messages),
        tools=[made(op) for op in OPERATIONS],
        workflows=[checkout],
    )
    if agent.LIFE == 1:
        run = runtime.start(checkout, agent.ORDER)
        (FOLDER / "run").write_text(run if isinstance(run, str) else run.run_id)
        states = [runtime.resume((FOLDER / "run").read_text())] if isinstance(run, str) else [run]
    else:
        states = runtime.resume_all()
    if letters := runtime.dead_letters():
        raise ForAPerson(f"dead-lettered: {json.dumps(letters, default=str)[:600]}")
    return states[-1].result


WITH = {
    "exactly-once": with_exactly_once,
    "agent-once": with_agent_once,
    "airlock": with_airlock,
    "chowki": with_chowki,
    "durabl": with_durabl,
}

if __name__ == "__main__":
    try:
        agent.finish(WITH[LIBRARY]())
    except ForAPerson as stopped:
        print(f"FOR A PERSON: {stopped}", flush=True)
        sys.exit(75)
