"""dura: SQLite, threads; its file runs with SQLite's default, synchronous=FULL."""

import threading
from typing import Any

from dura import DurableEngine
from dura.workers import process_task
from protocol import Engine, body, main


def chain(engine: Any, task: Any) -> None:
    for number in range(task.params["count"]):
        engine.checkpoint(task_id=task.task_id, step_name=f"step-{number}", fn=lambda number=number: body(number))


HANDLERS = {"chain": chain, "empty": lambda engine, task: None}
LONG_AGO = "2000-01-01T00:00:00.000000+00:00"


class Dura(Engine):
    def open(self) -> None:
        self.engine = DurableEngine(f"{self.folder}/dura.db")

    def one_task(self) -> None:
        process_task(self.engine, handlers=HANDLERS, task=self.engine.claim_task(worker_id="bench"))

    def sequence(self, name: str, count: int) -> None:
        self.engine.spawn_task(name="chain", params={"count": count}, idempotency_key=name)
        self.one_task()

    def resume(self, name: str, count: int) -> None:
        """A dead worker's claim holds for 120 s; it is ended by hand, so that only the resume is timed."""
        self.engine._conn().execute("UPDATE runs SET claim_expires_at = ? WHERE state = 'running'", (LONG_AGO,))
        self.one_task()

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        for _ in range(runs):
            self.engine.spawn_task(name="chain", params={"count": count})
        self.drain(min(10, runs))

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        for _ in range(runs):
            self.engine.spawn_task(name="empty", params={})
            if lanes == 1:
                self.one_task()
        if lanes > 1:
            self.drain(min(10, lanes))

    def drain(self, workers: int) -> None:
        def work() -> None:
            while task := self.engine.claim_task(worker_id="bench"):
                process_task(self.engine, handlers=HANDLERS, task=task)
            self.engine.close()

        threads = [threading.Thread(target=work) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(Dura)
