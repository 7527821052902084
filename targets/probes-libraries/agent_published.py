"""The refund agent with one library around each effect, as its documentation says; `sys.argv[1]` names it.

Where a library has no look-up of its own, the program asks before it sends. A failed step is tried three times.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

sys.path.insert(0, os.environ["PROBES"])
import office

LIFE, RIVALS = int(os.environ["LIFE"]), bool(os.environ["RIVALS"])
STORE = os.path.join(os.environ["STATE"], "library.db")
OFFER = "lookup" if office.ASKABLE else office.OFFER
EFFECTS = (office.REFUND, "mail")


def send(name: str, amount: int, key: str | None) -> dict:
    """The effect itself, under the library's key."""
    what = "mail" if name == "mail" else "refund"
    body = {"text": f"refund of {office.CHARGE}"} if what == "mail" else {"charge": office.CHARGE, "amount": amount}
    return office.send(what, body, headers={"Idempotency-Key": key} if key and OFFER != "nothing" else {})


def found(name: str, key: str) -> dict | None:
    """What the receiver shows under this key."""
    return office.find("mail" if name == "mail" else "refund", key)


def tried(do: Callable[[str, int], dict], enough: tuple = (), passing: tuple = ()) -> Callable[[str, int], dict]:
    """Each step at most three times; `enough` are the library's words for "do not try again".

    `passing` are those that it says to itself.
    """

    def step(name: str, amount: int) -> dict:
        for left in (2, 1, 0):
            try:
                return do(name, amount)
            except enough as stopped:
                office.told(stopped)
            except passing:
                raise
            except Exception:
                if not left:
                    raise
                time.sleep(0.2)
        raise AssertionError

    return step


def key_of(name: str) -> str:
    """A key of the business, where the program makes it up: it outlives the name of the function."""
    return f"{'mail' if name == 'mail' else 'refund'}:{office.CHARGE}"


def plain(name: str, amount: int) -> dict:
    """A step that is no effect, for libraries that guard effects alone."""
    return office.perform(name, amount, "")


# --- exactly-once: claims a key, and quarantines one in flight; it retries at a keyed receiver, and asks where it can


def with_exactly_once() -> list:
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

    store = Store.sqlite(STORE)

    def made(name: str) -> Callable[[int], dict]:
        def probe(key: str) -> ProbeResult:
            receipt = found(name, key)
            return ProbeResult(Verdict.COMMITTED, receipt) if receipt else ProbeResult(Verdict.NOT_COMMITTED)

        policies = {"keys": auto_retry, "lookup": check_then_decide(probe)}
        more = {"policy": policies[OFFER]} if OFFER in policies else {}
        if RIVALS:
            more["lease_ttl"] = 2.0

        @once(store, key=lambda amount: key_of(name), **more)
        def perform(amount: int) -> dict:
            return send(name, amount, current_key())

        return perform

    guarded = {name: made(name) for name in EFFECTS}
    return office.drive(
        tried(lambda name, amount: guarded.get(name, lambda a: plain(name, a))(amount), (QuarantinedError,))
    )


# --- agent-once: claims a key, and raises while it is pending; `verify` asks, also about a claim that is `stale`


def with_agent_once() -> list:
    from once import NOT_HAPPENED, Once
    from once.exceptions import OnceError

    # "well above the tool's longest run", and above the receiver's lag
    stale = max(office.TIMEOUT + 1.5, float(os.environ.get("LAG", "0")) + 1)
    once = Once(STORE, stale_after=stale, wait=4.0 if OFFER == "lookup" else 0.0, unknown_on=(OSError,))

    def made(name: str) -> Callable[[int], dict]:
        def verify(key: str, args: dict) -> object:
            return found(name, key) or NOT_HAPPENED

        more = {"verify": verify} if OFFER == "lookup" else {}

        @once.tool(name=name, **more)
        def perform(amount: int, idempotency_key: str | None = None) -> dict:
            return send(name, amount, idempotency_key)

        return perform

    guarded = {name: made(name) for name in EFFECTS}
    with once.scope(office.CHARGE):
        return office.drive(
            tried(lambda name, amount: guarded.get(name, lambda a: plain(name, a))(amount), (OnceError,))
        )


# --- airlock: a ledger by key; its reconciler re-issues what is keyed and probes what can be verified; gates wait


def with_airlock() -> list:
    import airlock
    from airlock import Decision, Effect, HumanDecision, Policy, Rule
    from airlock.reconcile import OnAbsent, reconcile_on_startup
    from airlock.store import from_url
    from airlock.types import Verification

    def made(name: str) -> Callable[[int], dict]:
        key = f"{name}:{office.CHARGE}"

        def verify(amount: int, **_: object) -> tuple:
            receipt = found(name, key)
            return (Verification.PRESENT, receipt) if receipt else (Verification.ABSENT, None)

        effects = {"keys": Effect(key_param="idempotency_key"), "lookup": Effect(verify=verify)}

        @airlock.guard(f"office.{name}", effect=effects.get(OFFER), context=lambda amount, **_: {"amount": str(amount)})
        def perform(amount: int, idempotency_key: str | None = None) -> dict:
            return send(name, amount, key if OFFER == "lookup" else idempotency_key)

        return perform

    guarded = {name: made(name) for name in EFFECTS}
    store = from_url(f"sqlite:///{STORE}")
    gated = [Rule(match="office.refund", decision=Decision.GATE)] if office.APPROVED_FIRST else []
    app = airlock.init(
        store=store,
        policy=Policy(rules=[*gated, Rule(match="office.*", decision=Decision.AUTO)]),
        **({"gate_wait": False, "transport": _reviewed(airlock)} if gated else {}),
    )

    def reconcile() -> None:
        print("reconciled:", reconcile_on_startup(store, older_than=timedelta(0), on_absent=OnAbsent.RETRY), flush=True)

    if LIFE > 1 and not RIVALS:
        reconcile()

    def do(name: str, amount: int) -> dict:
        if name == "approval":  # the guarded call itself is what is approved
            return {}
        if name not in guarded:
            return plain(name, amount)
        try:
            return guarded[name](amount)
        except airlock.ActionPending as pending:
            if amount != office.AMOUNT:  # whoever reviews it is shown the amount
                app.resume(pending.approval_ref, HumanDecision.REJECTED)
                office.told(RuntimeError(f"a refund of {amount} was shown for approval, and refused"))
            app.resume(pending.approval_ref, HumanDecision.APPROVED)
            return guarded[name](amount)
        except airlock.AirlockError as error:
            if OFFER == "nothing" or RIVALS:
                office.told(error)
            reconcile()
            return guarded[name](amount)

    return office.drive(tried(do, (airlock.AirlockError,)))


def _reviewed(airlock):
    from airlock.transport.console import ConsoleApprovalTransport

    return ConsoleApprovalTransport(os.path.join(os.environ["STATE"], "approvals.jsonl"))


# --- chowki: steps with their results; a step that is not idempotent-safe is claimed first, and an operator releases it


def with_chowki() -> list:
    import chowki

    chowki.configure(db_path=STORE, resume_secret=b"x" * 32)
    safe = OFFER != "nothing"

    @chowki.step(idempotent=False)
    def assess(amount: int) -> dict:
        return plain("assess", amount)

    @chowki.step(idempotent=False)
    def check_policy(amount: int) -> dict:
        return plain("check_policy", amount)

    @chowki.step(idempotent=False)
    def approval(amount: int) -> dict:
        chowki.pause(reason="a refund", payload={"amount": amount}, permitted_actions=("APPROVE", "REJECT"))
        return {"approved": amount}

    def effect(name: str, amount: int) -> dict:
        return office.perform(name, amount, office.CHARGE)

    @chowki.step(idempotent=not safe)
    def refund(amount: int) -> dict:
        return effect("refund", amount)

    @chowki.step(idempotent=not safe)
    def reimburse(amount: int) -> dict:
        return effect("refund", amount)

    @chowki.step(idempotent=not safe)
    def mail(amount: int) -> dict:
        return effect("mail", amount)

    known = {step.__name__: step for step in (assess, check_policy, approval, refund, reimburse, mail)}

    @chowki.workflow
    def settle() -> list:
        return office.drive(tried(lambda name, amount: known[name](amount), passing=(chowki.ChowkiError,)))

    try:
        if LIFE == 1:
            try:
                return settle(run_id="run-1")
            except chowki.WorkflowPaused as paused:
                done = chowki.resume(run_id="run-1", token=paused.token, decision=chowki.Decision.APPROVE)
                return done.value
        from chowki.config import get_engine
        from chowki.core.runner import recover_runs

        recover_runs(get_engine())
        return chowki.rerun("run-1")
    except chowki.ChowkiError as error:
        office.told(error)
    raise AssertionError


# --- durabl: a generator that yields steps; a tool is IDEMPOTENT, or AT_MOST_ONCE and then dead-lettered


def with_durabl() -> list:
    from durabl import ModelCall, Runtime, ToolCall, workflow
    from durabl.errors import DurablError
    from durabl.tools import ToolMode, tool

    @workflow
    def settle(ctx, charge):
        flow, said = office.steps(), None
        while True:
            try:
                name, amount = flow.send(said)
            except StopIteration as over:
                return over.value
            if name == "assess":
                said = yield ModelCall("assess", params={})
            else:
                said = yield ToolCall(name, {"amount": amount}, idempotency_key=key_of(name))

    def made(name: str):
        mode = ToolMode.AT_MOST_ONCE if OFFER == "nothing" and name in EFFECTS else ToolMode.IDEMPOTENT

        @tool(name=name, mode=mode)
        def perform(amount: int) -> dict:
            return office.perform(name, amount, office.CHARGE)

        return perform

    runtime = Runtime(
        db=STORE,
        llm=lambda prompt, *_, **__: plain("assess", 0),
        tools=[made(name) for name in ("check_policy", *EFFECTS)],
        workflows=[settle],
    )
    try:
        if LIFE == 1:
            run = runtime.start(settle, office.CHARGE)
            states = [runtime.resume(run)] if isinstance(run, str) else [run]
        else:
            states = runtime.resume_all()
    except DurablError as error:
        office.told(error)
    if letters := runtime.dead_letters():
        office.told(RuntimeError(f"dead-lettered: {str(letters)[:400]}"))
    if not states or states[-1].result is None:
        office.told(RuntimeError(f"not finished: {states}"))
    return states[-1].result


WITH = {
    "exactly-once": with_exactly_once,
    "agent-once": with_agent_once,
    "airlock-sdk": with_airlock,
    "chowki": with_chowki,
    "durabl": with_durabl,
}

if __name__ == "__main__":
    office.say(*WITH[sys.argv[1]]())
