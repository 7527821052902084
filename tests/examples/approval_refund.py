"""A refund that a person has to approve: exactly the request that was shown is sent, and no other."""

import time
from datetime import timedelta

from surefoot import Attempt, Denied, NotApproved, Surefoot, approve, effect, keyed, workflow

paid: list[int] = []


@effect(keyed(window=timedelta(hours=24)), needs_approval=True)
def refund(attempt: Attempt, charge: str, amount: int) -> int:
    paid.append(amount)  # stands for: stripe.Refund.create(charge, amount, idempotency_key=attempt.key)
    return amount


@workflow
def settle(charge: str, wanted: int) -> str:
    request = refund.request(charge, amount=wanted)
    try:
        approval = approve(request, by="finance", within=timedelta(days=3))
    except Denied as denied:
        return f"denied by {denied.who}: {denied.why}"
    try:
        refund(charge, amount=9999)  # what a confused model might do now
    except NotApproved as refused:
        print("refused:", refused.asked)
    return f"refunded {refund(charge, amount=wanted)}, approved by {approval.who}"


with Surefoot("agents.db") as sf:
    handle = sf.start(settle, "ch_1", 10, id="settle-1")
    while not (asked := sf.approvals()):
        time.sleep(0.01)
    print(asked[0].by, "is asked:", asked[0].text)

    # what `surefoot approve ID --as ann` does: it says which digest was shown
    sf.approve(asked[0].id, who="ann", digest=asked[0].digest)
    print(handle.result())

    other = sf.start(settle, "ch_2", 500, id="settle-2")
    while not (asked := sf.approvals()):
        time.sleep(0.01)
    sf.deny(asked[0].id, who="bob", why="no receipt")
    print(other.result())
print("paid:", paid)
