"""Absurd (https://github.com/earendil-works/absurd): PostgreSQL, its own schema as absurdctl carries it, defaults.

Its worker holds one connection and runs one task at a time unless told otherwise, so many runs at once are shared by
ten worker threads, which is its own way to more concurrency.
"""

import os
import subprocess
import sys
import threading
import time
from typing import Any

from absurd_sdk import Absurd
from fleet import note
from protocol import Engine, body, main

QUEUE = "bench"
CLAIM_SECONDS = 120
WORKERS_MAX = 10


def register(app: Absurd) -> Absurd:
    @app.register_task(name="chain")
    def chain(params: Any, context: Any) -> None:
        for number in range(params["count"]):
            context.step("step", lambda number=number: body(number))

    @app.register_task(name="queued")
    def queued(params: Any, context: Any) -> None:
        def noted(number: int) -> dict[str, str]:
            value = note(params["name"], number)
            time.sleep(params["seconds"])
            return value

        for number in range(params["count"]):
            context.step("step", lambda number=number: noted(number))

    return app


class AbsurdEngine(Engine):
    def open(self) -> None:
        self.install()
        self.app = register(Absurd(self.url, queue_name=QUEUE))
        self.app.create_queue(QUEUE)

    def install(self) -> None:
        """`absurdctl init` makes the schema; it refuses a second time, and another process may have been first."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute("SELECT pg_advisory_lock(1)")
            if db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'absurd'").fetchone() is None:
                program = os.path.join(os.path.dirname(sys.executable), "absurdctl")
                subprocess.run([program, "init", "--database", self.url], check=True, capture_output=True)

    def sequence(self, name: str, count: int) -> None:
        self.app.spawn("chain", {"count": count})
        self.app.work_batch("bench", batch_size=1, claim_timeout=CLAIM_SECONDS)

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        for _ in range(runs):
            self.app.spawn("chain", {"count": count})
        self.drain(runs)

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        for _ in range(runs):
            self.app.spawn("chain", {"count": 0})
            if lanes == 1:
                self.app.work_batch("bench", batch_size=1, claim_timeout=CLAIM_SECONDS)
        if lanes > 1:
            self.drain(runs)

    def drain(self, runs: int) -> None:
        left, guard = [runs], threading.Lock()

        def work(number: int) -> None:
            app = register(Absurd(self.url, queue_name=QUEUE))
            while left[0] > 0:
                tasks = app.claim_tasks(batch_size=1, claim_timeout=CLAIM_SECONDS, worker_id=f"worker-{number}")
                for task in tasks:
                    app._execute_task(task, CLAIM_SECONDS)
                with guard:
                    left[0] -= len(tasks)
                if not tasks:
                    time.sleep(0.005)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(min(WORKERS_MAX, runs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def enqueue(self, name: str, count: int, seconds: float) -> None:
        self.app.spawn("queued", {"name": name, "count": count, "seconds": seconds})

    def serve(self) -> None:
        self.app.start_worker(concurrency=WORKERS_MAX)


if __name__ == "__main__":
    main(AbsurdEngine)
