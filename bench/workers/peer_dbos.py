"""DBOS Transact (https://github.com/dbos-inc/dbos-transact-py) as shipped; on SQLite a rollback journal, not a WAL.

Its queue without `worker_concurrency` gives everything to one worker, so it gets 50.
"""

import concurrent.futures
import os
import sys
import threading
import time

from dbos import DBOS, DBOSClient, SetWorkflowID
from fleet import note
from protocol import Engine, body, main


@DBOS.step()
def no_op(number: int) -> dict[str, str]:
    return body(number)


@DBOS.workflow()
def steps(count: int) -> None:
    for number in range(count):
        no_op(number)


@DBOS.step()
def noted(name: str, number: int, seconds: float) -> dict[str, str]:
    value = note(name, number)
    time.sleep(seconds)
    return value


@DBOS.workflow(name="queued")
def queued(name: str, count: int, seconds: float) -> None:
    for number in range(count):
        noted(name, number, seconds)


class Dbos(Engine):
    def open(self) -> None:
        url = self.url or f"sqlite:///{self.folder}/dbos.sqlite"
        DBOS(config={
            "name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1",
            "executor_id": f"worker-{os.getpid()}",
        })  # fmt: skip
        DBOS.launch()

    def sequence(self, name: str, count: int) -> None:
        with SetWorkflowID(name):
            steps(count)

    def resume(self, name: str, count: int) -> None:
        DBOS.retrieve_workflow(name).get_result()  # launch() has taken it up again

    def at_once(self, prefix: str, runs: int, count: int) -> None:
        for handle in [DBOS.start_workflow(steps, count) for _ in range(runs)]:
            handle.get_result()

    def empty(self, prefix: str, runs: int, lanes: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
            list(pool.map(lambda _: steps(0), range(runs)))

    def make_queue(self) -> None:
        DBOS.register_queue("bench", worker_concurrency=50, on_conflict="always_update")

    def enqueue(self, name: str, count: int, seconds: float) -> None:
        options = {"workflow_name": "queued", "queue_name": "bench", "app_version": "1", "workflow_id": name}
        self.client.enqueue(options, name, count, seconds)

    def serve(self) -> None:
        self.make_queue()
        threading.Event().wait()


class Asker(Dbos):
    """A process that only puts runs into the queue: one that has launched would work on them."""

    def open(self) -> None:
        if sys.argv[1] == "fill":  # the first process makes the tables
            super().open()
            self.make_queue()
            DBOS.destroy()
        self.client = DBOSClient(system_database_url=self.url)


class Later(Dbos):
    """A worker that is opened when the gate is."""

    def open(self) -> None: ...

    def serve(self) -> None:
        super().open()
        super().serve()


if __name__ == "__main__":
    main({"fill": Asker, "ask": Asker, "serve": Later}.get(sys.argv[1], Dbos))
