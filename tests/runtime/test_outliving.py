"""Code that goes on after its run has ended, on a thread that the workflow left behind, begins nothing."""

from __future__ import annotations

from contextvars import Context, copy_context
from pathlib import Path

import pytest

from surefoot import Surefoot, step, workflow
from surefoot.core.errors import LeaseLost


def test_whoever_outlives_its_run_runs_no_body(tmp_path: Path) -> None:
    left, ran = list[Context](), list[int]()

    @step
    def body(number: int) -> int:
        ran.append(number)
        return number

    @workflow
    def leaves_something_behind() -> int:
        left.append(copy_context())
        return body(1)

    with Surefoot(tmp_path / "agents.db") as sf:
        assert sf.run(leaves_something_behind, id="r") == 1
        with pytest.raises(LeaseLost, match="its run has ended"):
            left[0].run(body, 2)
        assert ran == [1], "refused before its body, not by the store after it"
        read = sf.store.read_run("r")
        assert read is not None
        assert len(read[1]) == 1
