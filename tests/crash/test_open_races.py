"""Processes open, close and die on one store at once: none of them is refused for what another is just doing."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from surefoot.stores.sqlite.presence import Presence
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.forkserver import ForkServer

AGENT = str(Path(__file__).with_name("paired_agent.py"))
STARTS = 300


@contextmanager
def meanwhile(disturb: Callable[[], None]) -> Iterator[None]:
    """Do it over and over on another thread."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            disturb()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.xdist_group("processes")
@pytest.mark.timeout(180)
def test_opening_closing_and_dying_at_once_refuses_nobody(quick_path: Path) -> None:
    ends: Counter[int] = Counter()
    raised: list[str | None] = []
    starts = iter(range(STARTS))

    def work(worker: int) -> None:
        dice = random.Random(worker)
        for number in starts:
            child = server.start("open_and_close", str(quick_path / f"{number // 10}.db"))
            if dice.random() < 0.4:
                child.read(dice.uniform(0, 0.03))
                status = child.kill()
            else:
                status = child.join()
            ends[status] += 1
            if status not in (0, -9):
                raised.append(child.said("raised "))

    with ForkServer(AGENT) as server:
        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert raised == [] and ends[0] > STARTS / 3 and ends[-9] > STARTS / 10


def test_a_log_that_vanishes_while_its_length_is_read_is_empty(quick_path: Path) -> None:
    store = SqliteStore(quick_path / "agents.db")
    log = quick_path / "other.db-wal"
    store.path = str(quick_path / "other.db")

    def come_and_go() -> None:
        log.write_bytes(b"x")
        log.unlink()

    with meanwhile(come_and_go):
        assert {store.log_bytes() for _ in range(20_000)} <= {0, 1}
    store.path = str(quick_path / "agents.db")
    store.close()


def test_a_process_appears_although_others_leave_and_tidy_up(quick_path: Path) -> None:
    folder = quick_path / "agents.db-owners"

    def leave() -> None:
        try:
            os.rmdir(folder)
        except OSError:
            pass

    with meanwhile(leave):
        for owner_id in range(1, 3000):
            presence = Presence(quick_path / "agents.db")
            presence.appear(owner_id)
            assert not Presence(quick_path / "agents.db").is_gone(owner_id)
            presence.vanish()
    shutil.rmtree(folder, ignore_errors=True)
