"""Places and states in which a store cannot keep its promise: refused by name, and nothing that is there is lost."""

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot import Damaged, NotCommitted, StoreError, StoreRefused, Surefoot, step, workflow
from surefoot.stores.sqlite.place import NETWORK_FILE_SYSTEMS, file_system_of
from surefoot.stores.sqlite.store import SqliteStore
from tests.runtime.support import child, recorded_slots, rows


@step(name="work")
def work(n: int) -> int:
    return n


@workflow(name="flow")
def flow(n: int) -> int:
    return sum(work(i) for i in range(n))


@pytest.fixture(autouse=True)
def _known() -> None:
    workflow(name="flow")(flow.function)


def test_a_file_that_is_no_database_is_refused_and_kept(db: Path) -> None:
    for content in (b"%PDF-1.7 not a database at all" * 100, b"hello", b"SQLite format 3\x00" + b"\xff" * 4000):
        db.write_bytes(content)
        with pytest.raises(StoreError, match=r"not a SQLite database|damaged|could not be opened"):
            Surefoot(db)
        assert db.read_bytes() == content
        assert [path.name for path in db.parent.iterdir()] == [db.name], "nothing was left beside it"


def test_an_empty_file_becomes_a_store(db: Path) -> None:
    db.touch()
    with Surefoot(db) as sf:
        assert sf.run(flow, 3, id="r") == 3


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match=r"is a folder; give Surefoot the path of a file in it"):
        Surefoot(tmp_path)


def test_a_missing_folder_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="is not a folder; create it"):
        Surefoot(tmp_path / "none" / "agents.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreRefused, match="is not a folder"):
        Surefoot(tmp_path / "file" / "agents.db")


READ_ONLY = """
import os, sys
from surefoot import Surefoot, StoreRefused
import surefoot.stores.sqlite.store, encodings.idna  # all that is needed, before the rights to read it are given up
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    Surefoot(sys.argv[1])
except StoreRefused as error:
    print(error)
"""


def test_a_file_or_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """As a user without rights, since root may write anywhere."""
    for part in (tmp_path, *tmp_path.parents):
        if part.stat().st_uid == os.getuid() and len(part.parts) > 2:
            part.chmod(0o755)
    path = tmp_path / "agents.db"
    told = child(tmp_path, READ_ONLY, str(path))
    assert "is not writable by this user" in told.stdout, told.stderr
    with Surefoot(path) as sf:
        sf.run(flow, 2, id="r")
    path.chmod(0o444)
    told = child(tmp_path, READ_ONLY, str(path))
    assert "cannot be read and written by this user" in told.stdout, told.stderr
    path.chmod(0o644)
    with Surefoot(path) as sf:
        assert sf.run(flow, 2, id="r") == 1


def test_another_applications_database_is_refused_and_kept(db: Path) -> None:
    other = sqlite3.connect(db)
    other.execute("CREATE TABLE mine (x)")
    other.execute("INSERT INTO mine VALUES (1)")
    other.commit()
    other.close()
    before = db.read_bytes()
    with pytest.raises(StoreRefused, match="another application's tables"):
        Surefoot(db)
    assert db.read_bytes() == before
    other = sqlite3.connect(db)
    other.execute("PRAGMA application_id = 252006674")
    other.close()
    before = db.read_bytes()
    with pytest.raises(StoreRefused, match="belongs to another application"):
        Surefoot(db)
    assert db.read_bytes() == before


def test_a_schema_from_the_future_is_refused_and_kept(db: Path) -> None:
    with Surefoot(db) as sf:
        sf.run(flow, 2, id="r")
    other = sqlite3.connect(db)
    (version,) = other.execute("PRAGMA user_version").fetchone()
    other.execute(f"PRAGMA user_version = {version + 1}")
    other.close()
    before = rows(db)
    with pytest.raises(StoreRefused, match=rf"schema {version + 1}, made by a newer Surefoot.*Upgrade"):
        Surefoot(db)
    assert rows(db) == before


MOUNTS = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 21 0:45 / /home/me/net rw - nfs4 server:/export rw
41 21 0:46 / /mnt/with\\040space rw shared:7 master:2 - cifs //server/share rw
42 40 0:47 / /home/me/net/ssh rw - fuse.sshfs me@host: rw
43 21 8:1 /srv /srv rw - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("path", "device", "kind"),
    [
        ("/home/me/agents.db", (8, 1), "ext4"),
        ("/home/me/net/agents.db", (0, 45), "nfs4"),
        ("/mnt/with space/agents.db", (0, 46), "cifs"),
        ("/home/me/net/ssh/agents.db", (0, 47), "fuse.sshfs"),
        ("/srv/agents.db", (8, 1), "ext4"),
        ("/elsewhere/agents.db", (0, 99), ""),
    ],
)
def test_the_file_system_of_a_path_is_read_from_the_mounts(path: str, device: tuple[int, int], kind: str) -> None:
    assert file_system_of(path, MOUNTS, os.makedev(*device)) == kind
    assert (kind in NETWORK_FILE_SYSTEMS) == (kind not in ("ext4", ""))


def test_a_strangers_lock_at_open_is_waited_for_and_then_named(db: Path) -> None:
    with Surefoot(db) as sf:
        sf.run(flow, 2, id="r")
    stranger = sqlite3.connect(db, isolation_level=None)
    stranger.execute("BEGIN EXCLUSIVE")
    SqliteStore(db, busy_seconds=0.3).close()  # readers do not mind a writer in WAL mode
    stranger.execute("ROLLBACK")
    stranger.close()
    db.unlink()
    stranger = sqlite3.connect(db, isolation_level=None)
    stranger.execute("BEGIN EXCLUSIVE")
    with pytest.raises(NotCommitted, match=r"locked by another program"):
        SqliteStore(db, busy_seconds=0.3)
    stranger.execute("ROLLBACK")
    stranger.close()


def test_a_strangers_lock_while_running_stops_the_run_and_nothing_is_lost(db: Path) -> None:
    store = SqliteStore(db, busy_seconds=0.3)
    stranger = sqlite3.connect(db, isolation_level=None)
    locked: list[bool] = []

    @step(name="locking")
    def locking(n: int) -> int:
        if n == 3 and not locked:
            locked.append(True)
            stranger.execute("BEGIN IMMEDIATE")
        return n

    @workflow(name="stopped")
    def stopped() -> int:
        total = 0
        for n in range(6):
            try:
                total += locking(n)
            except Exception:
                total += 1000
        return total

    with Surefoot(store) as sf:
        with pytest.raises(NotCommitted, match=r"locked by another program for 0\.3 s; nothing was written"):
            sf.run(stopped, id="r")
        stranger.execute("ROLLBACK")
        assert len(recorded_slots(db)) == 3
        assert sf.run(stopped, id="r") == 15
    store.close()


def test_a_short_lock_is_waited_for(db: Path) -> None:
    import threading

    stranger = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    with Surefoot(db) as sf:
        sf.run(flow, 1, id="first")
        stranger.execute("BEGIN IMMEDIATE")
        threading.Timer(0.4, lambda: stranger.execute("ROLLBACK")).start()
        assert sf.run(flow, 3, id="r") == 3


FULL = """
import sys
from surefoot import Surefoot, StoreError, step, workflow
@step
def work(n: int) -> str:
    with open(sys.argv[2], "a") as file:
        file.write(f"{n}\\n")
    return "x" * 30_000
@workflow
def flow() -> int:
    total = 0
    for n in range(200):
        try:
            total += len(work(n))
        except Exception:
            print("swallowed", flush=True)
    return total
LIMIT
try:
    with Surefoot(sys.argv[1]) as sf:
        print(sf.run(flow, id="r"))
except StoreError as error:
    print(type(error).__name__, error)
"""
LIMITED = (
    "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))"
)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, bool]]:
    """(a folder, whether it is a small file system of its own); where mounting is not allowed, a limit stands in."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = (
        sys.platform == "linux"
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    )
    try:
        yield folder, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_the_run_by_name_and_what_was_acknowledged_stays(
    tmp_path: Path, small_disk: tuple[Path, bool]
) -> None:
    folder, mounted = small_disk
    ran, path = tmp_path / "ran", folder / "agents.db"
    told = child(tmp_path, FULL.replace("LIMIT", "" if mounted else LIMITED), str(path), str(ran))
    assert told.stdout.startswith(("NotCommitted", "CommitUnknown")), told.stdout + told.stderr
    assert "swallowed" not in told.stdout
    if mounted:
        assert "disk is full" in told.stdout and "Free some space" in told.stdout
    done = len(ran.read_text().split())
    kept = len(recorded_slots(path))
    assert 0 < kept < 200 and kept in (done, done - 1)
    if mounted:
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
    told = child(tmp_path, FULL.replace("LIMIT", ""), str(path), str(ran))
    assert told.stdout == f"{200 * 30_000}\n", told.stdout + told.stderr
    assert len(ran.read_text().split()) <= 201, "only the step that could not be recorded ran twice"


def test_a_limit_on_file_size_stops_the_run_by_name(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] != 0
    told = child(tmp_path, FULL.replace("LIMIT", LIMITED), str(tmp_path / "agents.db"), str(tmp_path / "ran"))
    assert told.stdout.startswith(("NotCommitted", "CommitUnknown")) and "swallowed" not in told.stdout, told.stderr
    done, kept = len((tmp_path / "ran").read_text().split()), len(recorded_slots(tmp_path / "agents.db"))
    assert 0 < kept < 200 and kept in (done, done - 1)


def test_a_changed_byte_in_the_journal_is_found_before_anything_is_replayed(db: Path) -> None:
    with Surefoot(db) as sf:
        sf.run(flow, 3, id="r")
        sf.run(flow, 3, id="other")
    other = sqlite3.connect(db)
    other.execute("UPDATE entries SET value = x'37' WHERE num = 2")
    other.commit()
    with Surefoot(db) as sf:
        with pytest.raises(Damaged, match=r"entry 1 \(work#1\) of run 'r'.*digest"):
            sf.store.read_run("r")
        assert sf.run(flow, 3, id="other") == 3
    other.close()


def test_an_unfinished_run_with_a_changed_byte_is_damaged_and_stays_so(db: Path) -> None:
    from tests.runtime.support import Crash, restart

    restart()
    crash = [True]

    @workflow(name="half")
    def half() -> int:
        got = work(1) + work(2)
        if crash:
            raise Crash
        return got

    with Surefoot(db) as sf, pytest.raises(Crash):
        sf.run(half, id="r")
    crash.clear()
    other = sqlite3.connect(db)
    other.execute("UPDATE entries SET value = x'37' WHERE num = 1")
    other.commit()
    with Surefoot(db) as sf:
        for _ in range(2):
            with pytest.raises(Damaged, match="entry 0"):
                sf.run(half, id="r")
            assert sf.get("r").status == "damaged"
    other.execute("UPDATE entries SET value = x'31' WHERE num = 1")
    other.commit()
    other.close()
    with Surefoot(db) as sf:
        assert sf.run(half, id="r") == 3
