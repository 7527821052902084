"""The same agent as a workflow of Surefoot: model calls are steps, operations are effects under the arm's contract."""

import urllib.parse

import agent

import surefoot

CONTRACTS = {
    "keyed": surefoot.keyed(86_400.0),
    "lookup": surefoot.lookup(1.0),
    "opaque": surefoot.opaque(),
}
CONTRACT = CONTRACTS[agent.ARM] if agent.ARM in CONTRACTS else surefoot.opaque()


@surefoot.step
def ask(messages: list[dict]) -> dict:
    return agent.ask(messages)


def operation(op: str):
    """reserve, charge or confirm as an effect."""

    @surefoot.effect(CONTRACT, name=op, timeout=10)
    def perform(attempt: surefoot.Attempt, order: str) -> str:
        body = {"order": order, "reference": attempt.key} if agent.ARM == "lookup" else {"order": order}
        return agent.call(f"{agent.SHOP}/do/{op}", body, dict(attempt.headers))["receipt"]

    if agent.ARM == "lookup":

        @perform.lookup
        def find(attempt: surefoot.Attempt, order: str) -> str | None:
            place = f"{agent.SHOP}/find/{op}?key={urllib.parse.quote(attempt.key)}"
            found = agent.call(place)["found"]
            return found[0]["receipt"] if found else None

    return perform


OPERATIONS = {op: operation(op) for op in ("reserve", "charge", "confirm")}


@surefoot.workflow
def checkout(order: str) -> str:
    messages = agent.first(order)
    while True:
        message = ask(messages)
        wanted = agent.wanted(message)
        if wanted is None:
            return message["content"]
        messages += agent.told(message, OPERATIONS[wanted[0]](order))


def opened() -> surefoot.Surefoot:
    return surefoot.Surefoot(agent.DB)
