"""A mail server that promises nothing: in doubt the run waits, and a person says what happened."""

import json

from surefoot import Attempt, RunWaiting, Surefoot, effect, opaque, workflow
from surefoot.core.effect import Do, Event, Status
from surefoot.core.writes import DecideEffect

outbox: list[str] = []


@effect(opaque())
def send_mail(attempt: Attempt, to: str) -> dict[str, str]:
    outbox.append(to)
    raise TimeoutError("no answer from the mail server")


@workflow
def welcome(to: str) -> str:
    return send_mail(to)["id"]


with Surefoot("agents.db") as sf:
    try:
        sf.run(welcome, "ada@example.org", id="welcome-ada")
    except RunWaiting as waiting:
        print("waits:", "surefoot resolve welcome-ada" in str(waiting))
    print("status:", sf.get("welcome-ada").status)

    # what `surefoot resolve welcome-ada send_mail --happened '{"id": "m-1"}' --why "it is in the log"` writes
    (parked,) = sf.store.find_effects([Status.PARKED])
    happened = Event(
        do=Do.HAPPENED, at=parked.updated_at, receipt=json.dumps({"id": "m-1"}).encode(), reason="in the log"
    )
    sf.store.transact([DecideEffect(key=parked.key, event=happened, stamp=1)])

    print("result:", sf.run(welcome, "ada@example.org", id="welcome-ada"))
print("mails sent:", len(outbox))
