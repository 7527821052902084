"""A refund that is paid once, although the answer to the first request got lost."""

from datetime import timedelta

from surefoot import Attempt, Surefoot, effect, keyed, step, workflow

paid: dict[str, int] = {}  # the payment service: it performs each key once


@step
def decide(order: str) -> int:
    return 40  # a model's answer, paid for once


@effect(keyed(window=timedelta(hours=24)), identity="refund:{order}")
def refund(attempt: Attempt, order: str, amount: int) -> dict[str, object]:
    paid.setdefault(attempt.headers["Idempotency-Key"], amount)
    if attempt.number == 1:
        raise TimeoutError("the answer was lost on its way")
    return {"order": order, "refunded": amount}


@workflow
def handle_complaint(order: str) -> dict[str, object]:
    return refund(order, decide(order))


with Surefoot("agents.db") as sf:
    print(sf.run(handle_complaint, "A-7", id="complaint-A-7"))
    print(sf.run(handle_complaint, "A-7", id="complaint-A-7"))  # the stored result, nothing runs
print("payments made:", list(paid.values()))
