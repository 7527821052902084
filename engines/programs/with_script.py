"""A plain script under a supervisor that starts it again: as published it starts over, with Surefoot it goes on."""

import sys

import agent


def published() -> None:
    messages = agent.first(agent.ORDER)
    while True:
        message = agent.ask(messages)
        wanted = agent.wanted(message)
        if wanted is None:
            agent.finish(message["content"])
            return
        key = f"{agent.ORDER}-{wanted[0]}" if agent.KEYED_BY_ENGINE else ""
        messages += agent.told(message, agent.act(wanted[0], agent.ORDER, key))


def ridden() -> None:
    import durable

    from surefoot.inside import script as inside

    with durable.opened() as sf:
        sys.exit(inside.ride(sf, durable.checkout, agent.ORDER, id=agent.ORDER, done=agent.finish))


published() if agent.PUBLISHED else ridden()
