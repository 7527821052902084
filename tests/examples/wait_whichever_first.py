"""A reminder or the payment, whichever comes first: both are waited for in the store, and no process has to live."""

import asyncio

import surefoot
from surefoot import Surefoot, step, workflow

sf = Surefoot("agents.db")


@step
async def remind(customer: str) -> str:
    # this customer pays as soon as it is reminded; a step may run again, the message id makes it one payment
    sf.signal(f"invoice of {customer}", "paid", "by card", message="payment-1")
    return f"reminded {customer}"


@workflow
async def chase(customer: str) -> list[str]:
    done: list[str] = []
    while True:
        index, payment = await surefoot.first(surefoot.sleep(0.2), surefoot.wait_for("paid", str))
        if index == 1:
            return [*done, f"paid {payment}"]
        done.append(await remind(customer))


async def main() -> None:
    async with sf, sf.worker():
        print(await sf.start(chase, "acme", id="invoice of acme", queue="default"))


asyncio.run(main())
