"""Every state that a power cut can leave a SQLite database in, opened and checked one by one.

The rule: what SQLite *asks* of the disk is recorded, never guessed. `record` replays statements through a VFS that
notes each write, sync, truncation, creation and deletion; `explore` cuts the power before every sync and after every
acknowledgement, lets SQLite recover each state of the files that the cut can leave (`crash_disk.py` has the model), and
compares what it finds with what was committed. A test that kills the process cannot see these states: the kernel keeps
every write of a dead process.

The states are covered, not sampled: a sector's value is chosen when the recovering SQLite reads it, and the walk
returns to every choice it made. States that differ only in bytes that the recovery never looked at end alike, so one
opening stands for all of them, and the openings of a cut are asserted to add up to exactly the product of its choices.
A cut that would need more than `openings_max` openings is sampled instead (seeded), and counted as such in the report.

Not covered: garbage beside a written sector, bit rot, and any difference between the SQLite that apsw bundles and the
one that Python's `sqlite3` is linked with. `crash_images` gives real files, so that the latter can open a sample.

Needs the `apsw` package, imported at the first call.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from surefoot.testing.crash_disk import Asked, Cut, Dice, Mark, Medium, View, Walk, cuts

if TYPE_CHECKING:
    import apsw

NAME = "crash.db"
"""What the database is called inside a recording; its journals are `crash.db-wal` and `crash.db-journal`."""

Files = Mapping[str, bytes]
Statement = tuple[str, Sequence[Any]]
Content = tuple[tuple[tuple[Any, ...], ...] | None, ...]
"""What the reading statements return: a tuple of rows for each, None while its table does not exist."""


def _no_sync_lies(number: int) -> bool:
    return False


def _every_cut(cut: Cut) -> bool:
    return True


def _nothing_to_verify(content: Content) -> str | None:
    return None


# --- recording ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The files before, every request after, and what the database held after each commit (`contents[0]`: before).

    `ends[n]` is how many statements had run when commit n was acknowledged.
    """

    base: Files
    events: Sequence[Asked | Mark]
    contents: Sequence[Content]
    ends: Sequence[int]
    reads: Sequence[str]

    @property
    def commit_count(self) -> int:
        """How many transactions changed the database."""
        return len(self.contents) - 1


class _Log:
    """The requests of one recording, and the journals whose first sync also syncs the directory."""

    def __init__(self) -> None:
        self.events: list[Asked | Mark] = []
        self.journals: set[str] = set()

    def add(self, verb: str, path: str, offset: int = 0, content: bytes = b"") -> None:
        self.events.append(Asked(verb=verb, name=os.path.basename(path), offset=offset, content=content))

    def synced(self, path: str) -> None:
        self.add("sync", path)
        if path in self.journals:  # os_unix.c does this below the VFS interface, where no note can be taken
            self.journals.discard(path)
            self.add("sync_directory", "")


def _recording_vfs(log: _Log) -> apsw.VFS:
    """The VFS of this operating system, with a note of everything that passes through it."""
    import apsw

    journals = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL

    class RecordedFile(apsw.VFSFile):
        def __init__(self, path: str, flags: list[int], name: str | apsw.URIFilename) -> None:
            self.path = path
            super().__init__("", name, flags)

        def xWrite(self, data: Any, offset: int) -> None:
            log.add("write", self.path, offset, bytes(data))
            cast(Any, super()).xWrite(data, offset)

        def xTruncate(self, newsize: int) -> None:
            log.add("truncate", self.path, newsize)
            super().xTruncate(newsize)

        def xSync(self, flags: int) -> None:
            super().xSync(flags)
            log.synced(self.path)

    class RecordingVFS(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("surefoot-recording", base="")

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
            if name is None:  # a temporary file: whatever it holds, nobody opens it after a crash
                return apsw.VFSFile("", None, flags)
            path = name if isinstance(name, str) else name.filename()
            if flags[0] & apsw.SQLITE_OPEN_CREATE and not os.path.exists(path):
                log.add("create", path)
            if flags[0] & journals:
                log.journals.add(path)
            return RecordedFile(path, flags, name)

        def xDelete(self, filename: str, syncdir: bool) -> None:
            super().xDelete(filename, syncdir)
            log.add("delete", filename)
            if syncdir:
                log.add("sync_directory", "")

    return RecordingVFS()


def record(
    statements: Iterable[Statement], *, base: Files, reads: Sequence[str], settings: Sequence[str] = ()
) -> Recording:
    """Replay `statements` on a copy of `base` and return all that SQLite asked of the disk while it did.

    `base` maps `NAME` and its journals to the bytes of a database at rest; it may be empty. `settings` are the PRAGMAs
    of the connection, run before the recording begins: what they write counts as settled. `reads` are queries with a
    fixed order that together say what the database holds. A commit is a statement that leaves no transaction open and
    after which they answer differently; it is acknowledged when the statement returns.
    """
    import apsw

    log = _Log()
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        for name, content in base.items():
            Path(folder, name).write_bytes(content)
        vfs = _recording_vfs(log)
        connection: Any = apsw.Connection(os.path.join(folder, NAME), vfs="surefoot-recording")
        try:
            for setting in settings:
                connection.execute(setting).fetchall()
            contents, ends, settled = [_content(connection, reads)], [0], base
            if settings:
                files = (file for file in Path(folder).iterdir() if not file.name.endswith("-shm"))
                settled = {file.name: file.read_bytes() for file in files}
                log.events.clear()
            for number, (sql, parameters) in enumerate(statements, 1):
                before = len(log.events)
                connection.execute(sql, parameters).fetchall()
                if not connection.in_transaction and len(log.events) > before:
                    content = _content(connection, reads)
                    if content != contents[-1]:  # a checkpoint writes and commits nothing
                        contents.append(content)
                        ends.append(number)
                        acked = len(contents) - 1
                        log.events.insert(before, Mark(started=acked, acked=acked - 1))
                        log.events.append(Mark(started=acked, acked=acked))
        finally:
            connection.close(True)
            vfs.unregister()
    return Recording(base=settled, events=tuple(log.events), contents=contents, ends=ends, reads=tuple(reads))


def _content(connection: Any, reads: Sequence[str]) -> Content:
    import apsw

    found: list[tuple[tuple[Any, ...], ...] | None] = []
    for read in reads:
        try:
            found.append(tuple(connection.execute(read)))
        except apsw.SQLError as error:
            if "no such table" not in str(error):
                raise
            found.append(None)
    return tuple(found)


def memory_folder() -> str | None:
    """Where files cost no disk access, if the system has such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# --- exploring ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One state that broke the promise.

    `kind` is `lost` (an acknowledged commit is gone), `torn` (what was found is not what the database held after any
    commit), `early` (a commit that had not begun), `unreadable` (SQLite raised), `damaged` (its integrity check
    complained) or `refused` (the caller's `verify` did).
    """

    kind: str
    why: str
    acked: int
    started: int


@dataclass(kw_only=True)
class Report:
    """What was covered and what broke.

    `states` counts the combinations of sector values, lengths and names that the cuts can leave, `openings` the
    recoveries run for them. In `survivals` of the states the commit under way was there although nobody had been told;
    the worst state had lost `commits_lost_max` acknowledged commits.
    """

    commits: int
    cuts: int = 0
    sampled_cuts: int = 0
    states: int = 0
    openings: int = 0
    survivals: int = 0
    commits_lost_max: int = 0
    violations: list[Violation] = field(default_factory=list[Violation])

    def kinds(self) -> dict[str, int]:
        """How many openings ended in each kind of violation."""
        return dict(Counter(violation.kind for violation in self.violations))


class _Recovery:
    """Lets SQLite open one state after another, and judges what it finds there."""

    def __init__(self, recording: Recording, verify: Callable[[Content], str | None]) -> None:
        self.recording, self.verify = recording, verify
        self.report = Report(commits=recording.commit_count)
        self.medium: Medium | None = None
        self.verdicts: dict[int, str | None] = {}
        self.survived = False
        self.vfs = _medium_vfs(self)

    def open(self, cut: Cut, medium: Medium) -> Violation | None:
        """Recover this state and compare it with the commits that it may and must hold."""
        import apsw

        self.medium = medium
        self.report.openings += 1
        self.survived = False
        try:
            kind, why = self._judge(*self._recover(), cut)
        except apsw.Error as error:
            kind, why = "unreadable", f"{type(error).__name__}: {error}"
        if not kind:
            return None
        violation = Violation(kind=kind, why=why, acked=cut.acked, started=cut.started)
        self.report.violations.append(violation)
        return violation

    def _recover(self) -> tuple[Content, str]:
        import apsw

        connection: Any = apsw.Connection(NAME, flags=apsw.SQLITE_OPEN_READWRITE, vfs="surefoot-medium")
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()  # the WAL index in memory, as shm is lost
            content = _content(connection, self.recording.reads)
            return content, "; ".join(str(row[0]) for row in connection.execute("PRAGMA integrity_check"))
        finally:
            connection.close(True)

    def _judge(self, content: Content, integrity: str, cut: Cut) -> tuple[str, str]:
        """The kind of violation and why; two empty strings if there is none."""
        contents = self.recording.contents
        if integrity != "ok":
            return "damaged", integrity
        found = next((n for n in range(cut.started, -1, -1) if contents[n] == content), None)
        if found is None:
            if content in contents:
                return (
                    "early",
                    f"commit {cut.started} was the last one begun, commit {contents.index(content)} is there",
                )
            return "torn", f"{[rows and len(rows) for rows in content]} rows, as after no commit"
        if found < cut.acked:
            self.report.commits_lost_max = max(self.report.commits_lost_max, cut.acked - found)
            return "lost", f"commit {cut.acked} was acknowledged, commit {found} is the last one there"
        self.survived = found > cut.acked
        if found not in self.verdicts:
            self.verdicts[found] = self.verify(content)
        refusal = self.verdicts[found]
        return ("refused", refusal) if refusal else ("", "")


def _medium_vfs(recovery: _Recovery) -> apsw.VFS:
    """A VFS whose files are the state under test; locks and syncs have nobody to mind."""
    import apsw

    def medium() -> Medium:
        assert recovery.medium is not None
        return recovery.medium

    class MediumFile(apsw.VFSFile):
        def __init__(self, view: View) -> None:  # stands alone: the base class would open a real file
            self.xRead, self.xFileSize, self.view = view.read, view.size, view

        def xWrite(self, data: Any, offset: int) -> None:
            self.view.write(bytes(data), offset)

        def xTruncate(self, newsize: int) -> None:
            self.view.truncate(newsize)

        def xClose(self) -> None: ...
        def xSync(self, flags: int) -> None: ...
        def xLock(self, level: int) -> None: ...
        def xUnlock(self, level: int) -> None: ...

        def xCheckReservedLock(self) -> bool:
            return False

        def xFileControl(self, op: int, ptr: int) -> bool:
            return False

        def xSectorSize(self) -> int:
            return 4096

        def xDeviceCharacteristics(self) -> int:
            return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE

    class MediumVFS(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("surefoot-medium", base="")

        def xFullPathname(self, name: str) -> str:
            return name

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
            assert name is not None, "a recovery needs no temporary file"
            return MediumFile(medium().open(name if isinstance(name, str) else name.filename()))

        def xAccess(self, pathname: str, flags: int) -> bool:
            view = medium().find(pathname)
            return view is not None and view.size() > 0  # to SQLite's own VFS an empty file does not exist

        def xDelete(self, filename: str, syncdir: bool) -> None:
            medium().delete(filename)

    return MediumVFS()


def explore(
    recording: Recording,
    *,
    verify: Callable[[Content], str | None] = _nothing_to_verify,
    lying_sync: Callable[[int], bool] = _no_sync_lies,
    only: Callable[[Cut], bool] = _every_cut,
    openings_max: int = 20_000,
    sample_count: int = 1_000,
    seed: int = 0,
    stop_at_first: bool = False,
) -> Report:
    """Cut the power everywhere, open every state that is left, and report what broke.

    After each recovery the database must hold what it held after commit n, acknowledged <= n <= begun; `PRAGMA
    integrity_check` must say ok; and `verify` must return None for the content (asked once for each n). `lying_sync` is
    the negative control: whether the n-th sync returned without syncing. `only` selects cuts.
    """
    recovery = _Recovery(recording, verify)
    report, rng = recovery.report, random.Random(seed)
    try:
        for cut in filter(only, cuts(recording.base, recording.events, lying_sync=lying_sync)):
            report.cuts += 1
            report.states += cut.state_count
            for violation in _openings(recovery, cut, openings_max, sample_count, rng):
                if violation and stop_at_first:
                    return report
    finally:
        recovery.vfs.unregister()
    return report


def _openings(
    recovery: _Recovery, cut: Cut, openings_max: int, sample_count: int, rng: random.Random
) -> Iterator[Violation | None]:
    """Open every state of this cut and yield each verdict; beyond `openings_max`, go on with a sample."""
    walk, covered = Walk(), 0
    for _ in range(openings_max):
        medium = Medium(cut, walk)
        yield recovery.open(cut, medium)
        alike = medium.states_alike()
        covered += alike
        recovery.report.survivals += alike * recovery.survived
        if not walk.advance():
            assert covered == cut.state_count, f"the openings stand for {covered} of {cut.state_count} states"
            return
    recovery.report.sampled_cuts += 1
    for _ in range(sample_count):
        yield recovery.open(cut, Medium(cut, Dice(rng)))


def crash_images(recording: Recording, *, count_per_cut: int, seed: int = 0) -> Iterator[tuple[dict[str, bytes], Cut]]:
    """Yield a seeded sample of states as files, each with the cut it comes from."""
    rng = random.Random(seed)
    for cut in cuts(recording.base, recording.events):
        for _ in range(min(count_per_cut, cut.state_count)):
            yield Medium(cut, Dice(rng)).files(), cut
