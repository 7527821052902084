"""A ticket system that ignores keys but can be searched: in doubt, Surefoot asks before it sends again."""

from datetime import timedelta

from surefoot import Attempt, Surefoot, effect, lookup, workflow

tickets: list[dict[str, str]] = []


@effect(lookup(lag=timedelta(seconds=0.1)), identity="review:{partner}", timeout=0.5)
def open_ticket(attempt: Attempt, partner: str) -> dict[str, str]:
    tickets.append({"id": f"T-{len(tickets) + 1}", "marker": attempt.key})
    raise ConnectionResetError("the connection broke after the ticket was made")


@open_ticket.lookup
def find_ticket(attempt: Attempt, partner: str) -> dict[str, str] | None:
    print("searching for", partner)
    return next((ticket for ticket in tickets if ticket["marker"] == attempt.key), None)


@workflow
def onboard(partner: str) -> str:
    return open_ticket(partner)["id"]


with Surefoot("agents.db") as sf:
    print(sf.run(onboard, "acme", id="onboard-acme"))
print("tickets:", len(tickets))
