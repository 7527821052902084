"""DBOS Transact (https://github.com/dbos-inc/dbos-transact-py) on SQLite, as shipped: a rollback journal, not a WAL."""

import concurrent.futures

from dbos import DBOS, SetWorkflowID
from protocol import Engine, body, main


@DBOS.step()
def no_op(number: int) -> dict[str, str]:
    return body(number)


@DBOS.workflow()
def steps(count: int) -> None:
    for number in range(count):
        no_op(number)


class Dbos(Engine):
    def open(self) -> None:
        url = f"sqlite:///{self.folder}/dbos.sqlite"
        DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "application_version": "1"})
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


if __name__ == "__main__":
    main(Dbos)
