"""Absurd on PostgreSQL: as published, each model call and operation is a step; with Surefoot the whole agent is one.

No module is needed to ride an engine: this does it with the parts of `surefoot.inside`.
"""

import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import agent
from absurd_sdk import Absurd
from absurd_sdk import TimeoutError as EventTimeout

from surefoot.inside import Done, Parked, Waker, attempt, leave_address, look_seconds

if not agent.PUBLISHED:
    import durable

    SF = durable.opened()
QUEUE, CLAIM_SECONDS = "engines", 12


def begin() -> Absurd:
    import psycopg

    with psycopg.connect(os.environ["ENGINE"], autocommit=True) as db:
        made = db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'absurd'").fetchone()
    if made is None:
        program = os.path.join(os.path.dirname(sys.executable), "absurdctl")
        subprocess.run([program, "init", "--database", os.environ["ENGINE"]], check=True, capture_output=True)
    app = Absurd(os.environ["ENGINE"], queue_name=QUEUE)
    if QUEUE not in app.list_queues():
        app.create_queue(QUEUE)
    return app


def register(app: Absurd) -> Absurd:
    @app.register_task(name="published")
    def published(params, ctx):
        messages = agent.first(agent.ORDER)
        while True:
            message = ctx.step("ask", lambda messages=messages: agent.ask(messages))
            wanted = agent.wanted(message)
            if wanted is None:
                return message["content"]
            key = f"{agent.ORDER}-{wanted[0]}" if agent.KEYED_BY_ENGINE else ""
            receipt = ctx.step("act", lambda wanted=wanted, key=key: agent.act(wanted[0], agent.ORDER, key))
            messages += agent.told(message, receipt)

    @app.register_task(name="ridden")
    def ridden(params, ctx):
        looks = 0
        while True:
            answer = ctx.step("agent", ride)
            if "parked" not in answer:
                return answer["value"]
            # on every pass: the same address twice is one, and the last that is new counts
            event = f"surefoot:{agent.ORDER}:{looks}"
            leave_address(SF, agent.ORDER, "absurd", {"event": event})
            pause = look_seconds(Parked.read(answer["parked"]), looks, SF.engine.time())
            try:
                ctx.await_event(event, timeout=int(pause) + 1)
            except EventTimeout:
                pass
            looks += 1

    def ride():
        done = attempt(SF, durable.checkout, (agent.ORDER,), {}, agent.ORDER)
        if isinstance(done, Done):
            return {"value": done.value}
        return {"parked": done.plain()}

    return app


def main() -> None:
    app = register(begin())
    name = "published" if agent.PUBLISHED else "ridden"
    task = app.spawn(name, {}, idempotency_key=agent.ORDER)["task_id"]
    work = threading.Thread(
        target=app.start_worker, kwargs={"claim_timeout": CLAIM_SECONDS, "poll_interval": 0.1}, daemon=True
    )
    asker = Absurd(os.environ["ENGINE"], queue_name=QUEUE)
    with (
        nullcontext()
        if agent.PUBLISHED
        else Waker(SF, "absurd", lambda _, at: asker.emit_event(at["event"]), every=0.2)
    ):
        work.start()
        agent.finish(asker.await_task_result(task, timeout=120).result)
    os._exit(0)


main()
