"""Real SIGKILL around model calls: what was answered is not paid for again, and the answer is the same.

Paid calls are counted by the server, on its disk before anything leaves it. A call in flight may be paid for twice: no
journal can know that it was served. No other is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from surefoot.testing.forkserver import ForkServer
from surefoot.testing.models import Meets, ModelServer, replies

WAYS = ("whole", "stream", "async stream")


@pytest.fixture(scope="module")
def agents() -> Iterator[ForkServer]:
    with ForkServer("tests.http.killed_agent") as server:
        yield server


class Row(NamedTuple):
    """Where it dies: at the server (`kill`), in the agent (`dies`), or around the commit of its nth answer.

    `paid` is what the calls of both lives come to.
    """

    name: str
    paid: int
    kill: str = ""
    dies: str = ""
    commit: int = 0
    when: str = ""
    ways: tuple[str, ...] = WAYS


ROWS = [
    Row("control", 2),
    Row("before the call", 2, kill="before"),
    Row("while it was served", 3, kill="after"),
    Row("before the commit", 3, commit=2, when="before"),
    Row("after the commit", 2, commit=2, when="after"),
    Row("after it returned", 2, dies="returned"),
    Row("in mid-stream", 3, dies="mid-stream", ways=WAYS[1:]),
    Row("when the end was seen", 2, dies="end seen", ways=WAYS[1:]),
]


@pytest.mark.parametrize(
    ("row", "way"),
    [(row, way) for row in ROWS for way in row.ways],
    ids=lambda value: value.name if isinstance(value, Row) else value,
)
def test_a_killed_agent_pays_for_no_answered_call_again(agents: ForkServer, tmp_path: Path, row: Row, way: str) -> None:
    db, record = str(tmp_path / "agents.db"), tmp_path / "paid.jsonl"
    with ModelServer(replies("one two three four"), record=record, strict=False) as models:
        if row.kill:
            models.at(2, Meets(kill=row.kill))  # type: ignore[arg-type]
        first = agents.start("run", db, models.url, way, row.dies, row.commit, row.when)
        models.victim.is_(first.pid)
        status = first.join()
        if row.name == "control":
            assert status == 0
        else:
            assert status == -9, first.lines  # it died by the signal, and had not ended before
        second = agents.start("run", db, models.url, way, "", 0, "")
        assert second.join() == 0, second.lines
        assert second.said("finished") is not None
        answers = [line for line in first.lines if line[0] in "12"]
        assert answers and (set(answers) <= set(second.lines) or row.name == "control")
        assert len(models.paid()) == row.paid
        assert record.read_text().count("\n") >= row.paid
