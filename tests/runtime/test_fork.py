"""A fork after the store was opened is an error that names the fork, and leaves the parent's store alone."""

import os
import sys
from pathlib import Path

import pytest

from tests.runtime.support import child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")

HEAD = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
from surefoot import Surefoot, step, workflow, effect, keyed
from surefoot.core.errors import ForkedStore

@step
def work(n: int) -> int:
    return n

@workflow
def flow(n: int) -> int:
    return sum(work(i) for i in range(n))

@effect(keyed(window=3600), identity="e:{n}")
def send(attempt, n: int) -> int:
    print("sent", flush=True)
    return n

def in_child(*uses):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        for use in uses:
            try:
                use()
            except ForkedStore as error:
                assert str(os.getpid()) in str(error) and "after a fork" in str(error), str(error)
                print("forked", flush=True)
            except BaseException as error:
                print(type(error).__name__, error, flush=True)
            else:
                print("nothing", flush=True)
        os._exit(0)
    for _ in range(1000):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        threading.Event().wait(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    print("the child hung", flush=True)
"""


def output(folder: Path, program: str) -> list[str]:
    done = child(folder, HEAD + program)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_use_in_the_child_names_the_fork(tmp_path: Path) -> None:
    program = """
with Surefoot("agents.db") as sf:
    sf.run(flow, 3, id="before")
    in_child(
        lambda: sf.run(flow, 3, id="r"),
        lambda: sf.run(flow, 3, id="before"),
        lambda: sf.get("before"),
        lambda: sf.list(),
        lambda: sf.cancel("before"),
        lambda: send(1),
        lambda: sf.start(flow, 2, id="s").result(5),
    )
    print(sf.run(flow, 4, id="after"), [run.id for run in sf.list()])
"""
    assert output(tmp_path, program) == ["forked"] * 7 + ["6 ['after', 'before']"]


def test_a_fork_before_the_first_run_is_named_too(tmp_path: Path) -> None:
    program = """
sf = Surefoot("agents.db")
in_child(lambda: sf.run(flow, 3, id="r"), lambda: sf.list())
print(sf.list())
"""
    assert output(tmp_path, program) == ["forked", "forked", "[]"]


def test_a_fork_inside_a_step_stops_the_childs_copy_of_the_run(tmp_path: Path) -> None:
    program = """
@step
def forking() -> int:
    sys.stdout.flush()
    forking.pid = os.fork()
    return 1

@workflow
def splits() -> int:
    return forking() + work(1)

sf = Surefoot("agents.db")
try:
    got = sf.run(splits, id="r")
except ForkedStore:
    print("forked", flush=True)
    os._exit(0)
os.waitpid(forking.pid, 0)
print(got, len(sf.store.read_run("r")[1]))
"""
    assert output(tmp_path, program) == ["forked", "2 2"]


def test_a_child_that_closes_or_exits_leaves_the_parent_present(tmp_path: Path) -> None:
    program = """
sf = Surefoot("agents.db")
sf.run(flow, 1, id="r")
in_child(sf.close)
print(sf.run(flow, 3, id="again"), sf.store.is_gone(sf.engine.owner))
print(len(os.listdir("agents.db-owners")))
"""
    assert output(tmp_path, program) == ["nothing", "3 False", "1"]


def test_a_child_opens_its_own_and_works(tmp_path: Path) -> None:
    program = """
sf = Surefoot("agents.db")
sf.run(flow, 3, id="parent")
def own():
    with Surefoot("agents.db") as mine:
        print(mine.run(flow, 3, id="parent"), mine.run(flow, 4, id="child"), flush=True)
in_child(own)
print(sf.get("child").result)
"""
    assert output(tmp_path, program) == ["3 6", "nothing", "6"]


@pytest.mark.skipif(sys.platform == "darwin", reason="forking a threaded process is undefined there")
def test_a_fork_while_another_thread_commits_does_not_hang_the_child(tmp_path: Path) -> None:
    """The committing thread does not exist in the child, so nobody would ever give its lock back."""
    program = """
sf = Surefoot("agents.db")
sf.run(flow, 1, id="r")
with sf.engine.committer._lead:
    in_child(lambda: sf.run(flow, 3, id="c"), lambda: sf.cancel("r"), sf.close)
print(sf.run(flow, 3, id="p"))
"""
    assert output(tmp_path, program) == ["forked", "forked", "nothing", "3"]
