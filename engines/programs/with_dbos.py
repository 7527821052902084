"""DBOS on PostgreSQL: as published, each model call and operation is a step; with Surefoot the whole agent is one."""

import os

import agent
from dbos import DBOS, SetWorkflowID

from surefoot.inside import dbos as inside

if not agent.PUBLISHED:
    import durable

    SF = durable.opened()


@DBOS.step()
def ask(messages: list) -> dict:
    return agent.ask(messages)


@DBOS.step()
def act(op: str, order: str) -> str:
    return agent.act(op, order, f"{DBOS.workflow_id}-{DBOS.step_id}" if agent.KEYED_BY_ENGINE else "")


@DBOS.workflow()
def published(order: str) -> str:
    messages = agent.first(order)
    while True:
        message = ask(messages)
        wanted = agent.wanted(message)
        if wanted is None:
            return message["content"]
        messages += agent.told(message, act(wanted[0], order))


@DBOS.workflow()
def ridden(order: str) -> str:
    return inside.ride(SF, durable.checkout, order)


def main() -> None:
    DBOS(config={
        "name": "engines", "system_database_url": os.environ["ENGINE"], "log_level": "ERROR",
        "application_version": "1", "run_admin_server": False,
    })  # fmt: skip
    DBOS.launch()
    with SetWorkflowID(agent.ORDER):
        handle = DBOS.start_workflow(published if agent.PUBLISHED else ridden, agent.ORDER)
    if agent.PUBLISHED:
        agent.finish(handle.get_result())
    else:
        with inside.waking(SF, every=0.2):
            agent.finish(handle.get_result())
    DBOS.destroy()


main()
