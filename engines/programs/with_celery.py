"""Celery: a worker with one process in its pool, which is what is killed; the broker and the results are files.

With these brokers a message is lost with the worker's main process; that process stays.
"""

import os
import subprocess
import sys

import agent
import celery.result
import celery_tasks

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    with open(f"{agent.OUT}.worker.txt", "wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-P", "prefork", "-c", "1",
             "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], HERE])},
            stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        task = celery_tasks.published if agent.PUBLISHED else celery_tasks.ridden
        task.apply_async([agent.ORDER], task_id=agent.ORDER)
        agent.finish(celery.result.AsyncResult(agent.ORDER, app=celery_tasks.app).get(timeout=100, interval=0.1))
        worker.terminate()
        worker.wait(20)


main()
