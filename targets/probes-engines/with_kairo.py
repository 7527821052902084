"""kairo: each step an action; what acts is `real` and stops for review, unless its receiver honours keys.

Its core is compiled from WebAssembly at each start, half a minute on a busy core; here the compiler keeps what it made.
"""

import asyncio
import os
import sys

sys.path.insert(0, os.environ["PROBES"])
import office
import wasmtime
from kairo_sdk import EmbeddedBackend, Kairo, SQLiteStore, UnknownOutcomeError

ORDER, LIFE = f"refund-{office.CHARGE}", os.environ["LIFE"]
REPEATABLE = ("check_policy", "assess")
CACHING = wasmtime.Config()
CACHING.cache = True
PLAIN_ENGINE = wasmtime.Engine
wasmtime.Engine = lambda: PLAIN_ENGINE(CACHING)


async def main() -> None:
    owner = f"machine-{LIFE}" if os.environ["RIVALS"] else "one"
    store = SQLiteStore(os.path.join(os.environ["STATE"], "kairo.db"))
    over = asyncio.get_running_loop().create_future()

    def observed(seen) -> None:
        if seen.kind in ("run.settled", "run.stuck") and (seen.kind == "run.stuck" or seen.status == "blocked"):
            print(f"{seen.kind} {seen.run_id} {seen.status}: {seen.error}", flush=True)
            if not over.done():
                over.set_result(f"{seen.kind}, {seen.status or 'stuck'}: {seen.error}")

    k = Kairo(backend=await EmbeddedBackend.open(store, lease_ms=6_000, owner=owner), observe=observed)
    for name in ("check_policy", "assess", office.REFUND, "mail"):
        effect = "unprotected" if name in REPEATABLE or office.OFFER == "keys" else "real"

        def handler(given: dict, ctx, name=name) -> dict:
            try:
                return office.perform(name, given["amount"], ORDER)
            except Exception as error:
                raise UnknownOutcomeError(repr(error)) from error

        k.action(name, effect=effect)(handler)

    @k.workflow("settle")
    async def settle(ctx, req: dict) -> list:
        async def do(name: str, amount: int) -> dict:
            if name == "approval":
                return await ctx.wait_for("approve")
            return await ctx.call(name, {"amount": amount})

        return await office.drive_async(do)

    await k.start()
    run = asyncio.ensure_future(k.run("settle", {}, id=ORDER))
    if office.APPROVED_FIRST and LIFE == "1":
        await asyncio.sleep(0.5)
        await k.signal(ORDER, "approve", {"said": "yes"})
    await asyncio.wait([run, over], return_when=asyncio.FIRST_COMPLETED)
    if over.done():
        office.told(RuntimeError(over.result()))
    try:
        office.say(*run.result())
    except Exception as error:
        office.told(error)
    sys.stdout.flush()
    os._exit(0)


asyncio.run(main())
