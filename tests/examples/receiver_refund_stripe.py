"""A refund through Stripe's own package: the agent dies after Stripe acted and before anything is recorded.

A twin stands in for Stripe on this machine; without `base_addresses`, and with your key, it is the real thing.
"""

import os
import signal
import subprocess
import sys

import stripe

from surefoot import Attempt, Surefoot, effect, receivers, workflow
from surefoot.testing.twins import Twin, wire


def client(attempt: Attempt) -> stripe.StripeClient:
    return stripe.StripeClient("sk_test_1", base_addresses={"api": sys.argv[1]}, **attempt.options("stripe"))


@effect(receivers.get("stripe.v1"), identity="refund:{order}")
def refund(attempt: Attempt, order: str, charge: str, cents: int) -> str:
    made = client(attempt).v1.refunds.create(
        {"charge": charge, "amount": cents, "metadata": {"intent": attempt.key}}, {"idempotency_key": attempt.key}
    )
    if sys.argv[2] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return made.id


@refund.lookup  # asked only when Stripe may have forgotten the key, 12 hours after the first try
def find_refund(attempt: Attempt, order: str, charge: str, cents: int) -> str | None:
    listed = client(attempt).v1.refunds.list({"charge": charge, "limit": 100})
    ours = [made.id for made in listed.auto_paging_iter() if made.to_dict()["metadata"].get("intent") == attempt.key]
    return ours[0] if ours else None


@workflow
def handle_complaint(order: str) -> str:
    return refund(order, "ch_1", 4000)


if len(sys.argv) == 3:  # a life of the agent
    with Surefoot("agent.db") as sf:
        print("refund", sf.run(handle_complaint, "A-7", id="complaint-A-7"))
else:
    with Twin(wire.stripe.BEHAVIOUR, wire=wire.stripe.Wire()) as twin:
        for life in ("dies", "lives"):
            status = subprocess.run([sys.executable, __file__, twin.url, life]).returncode
            print("the agent", life, "with status", status, flush=True)
        print("requests:", len(twin.lines("arrived")), "refunds made:", len(twin.acts()))
