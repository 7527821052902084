"""A ticket through zenpy: the agent dies in the middle and comes back when Zendesk has forgotten its key.

Zendesk keeps a key for two hours. The key is also the ticket's external id, so that it can be found for ever.
"""

import os
import signal
import subprocess
import sys

from zenpy import Zenpy
from zenpy.lib.api_objects import Ticket

from surefoot import Attempt, Surefoot, effect, receivers, workflow
from surefoot.testing.twins import SharedClock, Twin, wire


def client(attempt: Attempt) -> Zenpy:
    session = attempt.session()  # carries the Idempotency-Key, and sends each request once
    return Zenpy(subdomain="acme", email="agent@acme.test", token="t", session=session, timeout=attempt.timeout)


@effect(receivers.get("zendesk.tickets"), identity="ticket:{order}")
def open_ticket(attempt: Attempt, order: str, text: str) -> int:
    made = client(attempt).tickets.create(Ticket(subject=f"Order {order}", description=text, external_id=attempt.key))
    if sys.argv[3] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return made.ticket.id


@open_ticket.lookup
def find_ticket(attempt: Attempt, order: str, text: str) -> int | None:
    print("looking for the ticket")
    found = list(client(attempt).tickets(external_id=attempt.key))
    return found[0].id if found else None


@workflow
def triage(order: str) -> int:
    return open_ticket(order, "It arrived broken.")


if len(sys.argv) == 4:  # a life of the agent
    with Surefoot("agent.db", clock=SharedClock(sys.argv[2])) as sf:
        print("ticket", sf.run(triage, "A-7", id="triage-A-7"))
else:
    with Twin(wire.zendesk.BEHAVIOUR, wire=wire.zendesk.Wire()) as twin:
        os.environ.update(ZENPY_FORCE_SCHEME="http", ZENPY_FORCE_NETLOC=f"127.0.0.1:{twin.port}")
        for life in ("dies", "lives"):
            status = subprocess.run([sys.executable, __file__, twin.url, str(twin.clock.path), life]).returncode
            print("the agent", life, "with status", status, flush=True)
            twin.advance(3 * 3600)
        print("requests:", len(twin.lines("arrived")), "tickets made:", len(twin.acts()))
