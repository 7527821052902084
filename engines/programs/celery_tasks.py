"""Celery's tasks: as published, the agent is one late-acknowledged task; with Surefoot that task rides."""

import os

import agent
from celery import Celery
from celery.signals import worker_process_init

FOLDER = os.environ["ENGINE"]
app = Celery(broker="filesystem://", backend=f"file://{FOLDER}/results")
app.conf.update(
    broker_transport_options={
        "data_folder_in": f"{FOLDER}/queue",
        "data_folder_out": f"{FOLDER}/queue",
        "control_folder": f"{FOLDER}/control",
    }
)
LATE = {"bind": True, "acks_late": True, "reject_on_worker_lost": True}
opened = []
for part in ("queue", "control", "results"):
    os.makedirs(f"{FOLDER}/{part}", exist_ok=True)


@worker_process_init.connect
def begin(**_):
    """Surefoot is opened in the process that runs tasks, after the fork; a kill is meant for this process."""
    os.setpgid(0, 0)
    agent.say_victim(os.getpid())
    if not agent.PUBLISHED:
        import durable

        opened.append(durable.opened())


@app.task(**LATE)
def published(self, order: str) -> str:
    messages = agent.first(order)
    while True:
        message = agent.ask(messages)
        wanted = agent.wanted(message)
        if wanted is None:
            return message["content"]
        key = f"{self.request.id}-{wanted[0]}" if agent.KEYED_BY_ENGINE else ""
        messages += agent.told(message, agent.act(wanted[0], order, key))


@app.task(**LATE)
def ridden(self, order: str) -> str:
    import durable

    from surefoot.inside import celery as inside

    return inside.ride(self, opened[0], durable.checkout, order, look=0.5)
