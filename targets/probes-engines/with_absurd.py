"""Absurd: each step by `ctx.step`, the task retried; one attempt where nothing makes another one safe."""

import os
import subprocess
import sys
import threading

sys.path.insert(0, os.environ["PROBES"])
import office
from absurd_sdk import Absurd

ORDER, QUEUE = f"refund-{office.CHARGE}", "probes"
CLAIM_SECONDS = int(max(8, office.TIMEOUT + 4))  # longer than the longest step
TRIES = 1 if office.OFFER == "nothing" else 5


def begin() -> Absurd:
    import psycopg

    with psycopg.connect(os.environ["ENGINE"], autocommit=True) as db:
        there = db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'absurd'").fetchone()
    if there is None:
        program = os.path.join(os.path.dirname(sys.executable), "absurdctl")
        subprocess.run([program, "init", "--database", os.environ["ENGINE"]], check=True, capture_output=True)
    app = Absurd(os.environ["ENGINE"], queue_name=QUEUE)
    if QUEUE not in app.list_queues():
        app.create_queue(QUEUE)
    return app


def main() -> None:
    app = begin()

    @app.register_task(name="settle")
    def settle(params, ctx):
        def do(name: str, amount: int) -> dict:
            if name == "approval":
                return ctx.await_event(f"approval:{ctx.task_id}")
            return ctx.step(name, lambda: office.perform(name, amount, ctx.task_id))

        return office.drive(do)

    task = app.spawn(
        "settle", {}, max_attempts=TRIES, retry_strategy={"kind": "fixed", "base_seconds": 1}, idempotency_key=ORDER
    )["task_id"]
    asker = Absurd(os.environ["ENGINE"], queue_name=QUEUE)
    if office.APPROVED_FIRST and os.environ["LIFE"] == "1":
        asker.emit_event(f"approval:{task}", {"said": "yes"})
    work = {"claim_timeout": CLAIM_SECONDS, "poll_interval": 0.1}
    threading.Thread(target=app.start_worker, kwargs=work, daemon=True).start()
    end = asker.await_task_result(task, timeout=120)
    if end.state != "completed":
        office.told(RuntimeError(f"{end.state}: {end.failure}"))
    office.say(*end.result)
    sys.stdout.flush()
    os._exit(0)


main()
