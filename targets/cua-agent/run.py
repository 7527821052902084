"""Six rows around the charge, for both versions as published and for what a shop may offer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from planner import OPERATIONS, plan

from surefoot.testing.models import Meets, ModelServer
from targets.bench import Bench
from targets.person import resolve_by_ledger
from targets.results import Row, Verdict
from targets.shop import BEFORE, EFFECT, Shop, Strike
from targets.supervise import Lives, supervise

CHARGE_IS_KNOWN = 3  # the model call after the charge
ROWS: dict[str, Strike | Meets | str] = {
    "control, nobody killed": "",
    "before: the charge arrived, nothing was done": Strike("charge", BEFORE),
    "gap: charged, the answer never left": Strike("charge", EFFECT),
    "tool end: answer received, tool not returned": "charge",
    "returned: at the next model call": Meets(kill="before"),
    "next reply lost: the model answered, nobody got it": Meets(kill="after"),
}
ARMS = {
    "cua-agent 0.8.4 as published": ("cua-0.8.4", "agent_published.py", "plain"),
    "cua-agent 0.9.0 as published": ("cua-0.9.0", "agent_published.py", "plain"),
    "0.8.4 + Surefoot, key honoured": ("cua-0.8.4", "agent_surefoot.py", "keyed"),
    "0.9.0 + Surefoot, key honoured": ("cua-0.9.0", "agent_surefoot.py", "keyed"),
    "0.9.0 + Surefoot, key honoured, calls recorded": ("cua-0.9.0", "agent_recorded.py", "keyed"),
    "0.9.0 + Surefoot, lookup, no key": ("cua-0.9.0", "agent_surefoot.py", "lookup"),
    "0.9.0 + Surefoot, nothing offered": ("cua-0.9.0", "agent_surefoot.py", "nothing"),
}


def measure(bench: Bench) -> Iterator[Row]:
    """Every arm, every row."""
    for arm, (env, file, offer) in ARMS.items():
        for name, strike in ROWS.items() if bench.wants(arm) else ():
            yield measure_row(bench, arm, bench.python(env), file, offer, name, strike)


def measure_row(
    bench: Bench, arm: str, python: str, file: str, offer: str, name: str, strike: Strike | Meets | str
) -> Row:
    """One world: shop, model, agent; killed once, started again, counted."""
    world = bench.world(f"{arm}-{name}")
    strikes = [strike] if isinstance(strike, Strike) else []
    shop = Shop(world / "shop.jsonl", honours_keys=offer == "keyed", strikes=strikes)
    model = ModelServer(plan, record=world / "model.jsonl")
    if isinstance(strike, Meets):
        model.at(CHARGE_IS_KNOWN, strike)
    with shop, model:
        env = {
            "SHOP": shop.base,
            "MODEL": model.url,
            "STATE": str(world),
            "TOOL_END": strike if isinstance(strike, str) else "",
            "OPENAI_API_KEY": "scripted",
            "NO_PROXY": "*",
            "CUA_TELEMETRY_ENABLED": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OTEL_SDK_DISABLED": "true",
        }

        def born(pid: int) -> None:
            shop.name_victim(pid)
            model.victim.is_(pid)

        def again(lives: Lives) -> bool:
            return resolve_by_ledger(world / "agents.db", shop) if lives.waits else lives.ends[-1] == -9

        lives = supervise([python, bench.file(file), offer], folder=world, env=env, born=born, between=again)
        return _row(arm, name, strike, lives, shop.happened(), len(model.paid()), world)


def _row(
    arm: str, name: str, strike: Strike | Meets | str, lives: Lives, happened: dict[str, int], paid: int, world: Path
) -> Row:
    counts = [happened.get(operation, 0) for operation in OPERATIONS]
    right = lives.finished and lives.words[-1].strip().endswith("message")
    verdict: Verdict = "twice" if max(counts) > 1 else "lost" if min(counts) < 1 else "once" if right else "wrong"
    if not lives.finished:
        print(f"    {lives.ends}: {lives.words[-1][-600:]}")
    asked = int(strike != "")
    parked = f", {lives.ends.count(75)} parked" if 75 in lives.ends else ""
    if verdict == "once" and parked:
        verdict = "told"
    return Row(
        row=name,
        arm=arm,
        ours="Surefoot" in arm,
        seen=f"{'/'.join(map(str, counts))}, {paid}{parked}",
        verdict=verdict,
        good=int(verdict in ("once", "told")),
        fault="kill" if asked else "none",
        asked=asked,
        done=int(asked and lives.ends[0] == -9),
        ends=lives.counted(),
        counts={**dict(zip(OPERATIONS, counts, strict=True)), "model_calls": paid},
    )
