"""Runs rows: starts the two receivers once, then kills, restarts and counts one agent per row.

The harness is a supervisor and nothing more. It starts the same command until it exits with 0, it names the process
group that a receiver may kill, and where an agent waits for a person it plays the person: it looks into the world's
ledger, never into Surefoot, and says what it saw with Surefoot's own command.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from surefoot.demo.count import Life, Row, count_row, read_record
from surefoot.demo.person import answer_doubts
from surefoot.demo.scenario import KILLS, WAITING_EXIT, Kill, Policy, Window

_PATH = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
_LIVES_MAX = 6
_LIFE_SECONDS_MAX = 30.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The two receivers, running, and the directory that every row keeps its files in."""

    model: str
    world: str
    directory: Path
    environment: dict[str, str]


@contextmanager
def open_bench(directory: Path) -> Generator[Bench]:
    """Starts both receivers; they end when this closes their pipes, and also if this process dies."""
    environment = _keep_bytecode(directory)
    model, world = _start_receiver("model", environment), _start_receiver("world", environment)
    try:
        yield Bench(
            model=_read_address(model), world=_read_address(world), directory=directory, environment=environment
        )
    finally:
        for process in (model, world):
            process.communicate()  # closes the pipe, which is how a receiver learns that it is over


def _keep_bytecode(directory: Path) -> dict[str, str]:
    """The environment of every process here: what one compiles, hundreds read, whatever the machine's habit."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}


def _start_receiver(name: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"surefoot.demo.{name}"]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _read_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        raise RuntimeError(f"a receiver did not start: {process.args}")
    return address


def run_rows(bench: Bench, policies: Sequence[Policy], *, jobs: int, disarmed: Kill | None = None) -> Iterator[Row]:
    """Yields every policy's control and thirty kills as they finish, `jobs` at a time."""
    kills: Iterable[Kill | None] = (None, *KILLS)
    with ThreadPoolExecutor(jobs) as pool:
        waiting: set[Future[Row]] = {
            pool.submit(run_row, bench, policy, kill, disarmed=kill is not None and kill == disarmed)
            for kill in kills
            for policy in policies
        }
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for finished in done:
                    yield finished.result()
        finally:
            pool.shutdown(cancel_futures=True)


def run_row(bench: Bench, policy: Policy, kill: Kill | None, *, disarmed: bool = False) -> Row:
    """Runs one agent to its end through one kill, and counts what the receivers recorded.

    `disarmed` leaves the kill out but still expects it: the negative control, which must come back as a fault.
    """
    name = f"{policy.name}-{kill.step}-{kill.window}" if kill is not None else f"{policy.name}-control"
    row = _RowRun(bench=bench, policy=policy, name=name, armed=None if disarmed else kill)
    started = time.monotonic()
    with row.places():
        row.supervise()
    return count_row(
        policy,
        kill,
        world=read_record(row.ledger),
        model=read_record(row.directory / "model.jsonl"),
        lives=row.lives,
        parked=row.parked,
        seconds=time.monotonic() - started,
    )


class _RowRun:
    """One row under way."""

    def __init__(self, *, bench: Bench, policy: Policy, name: str, armed: Kill | None) -> None:
        self.lives: list[Life] = []
        self.parked = 0
        self.directory = bench.directory / name
        self.directory.mkdir()
        self.ledger = self.directory / "ledger.jsonl"
        self._bench = bench
        self._policy = policy
        self._name = name
        self._armed = armed

    @contextmanager
    def places(self) -> Generator[None]:
        """Gives this row a place of its own at both receivers; the armed kill goes to the one it is meant for."""
        in_window = self._armed is not None and self._armed.window is not Window.RECORDED
        for address, path in ((self._bench.world, self.ledger), (self._bench.model, self.directory / "model.jsonl")):
            is_target = (
                in_window and self._armed is not None and self._armed.hits_tool == (address == self._bench.world)
            )
            kill = self._armed if is_target else None
            place: dict[str, object] = {
                "path": str(path),
                "kill_number": kill.turn if kill is not None else None,
                "window": kill.window if kill is not None else None,
                "offer": self._policy.offer,
            }
            _put(address, f"/bench/{self._name}", place)
        yield
        for address in (self._bench.world, self._bench.model):
            _put(address, f"/bench/{self._name}/closed", {})

    def supervise(self) -> None:
        """Starts the same command until it exits with 0, at most six times."""
        while len(self.lives) < _LIVES_MAX:
            life = self._live()
            self.lives.append(life)
            if life.exit_code in (0, -signal.SIGTERM):  # done, or out of time
                return
            if life.exit_code == WAITING_EXIT and not self._be_the_person():
                return

    def _be_the_person(self) -> bool:
        try:
            self.parked += answer_doubts(
                self.directory / "agents.db", read_record(self.ledger), self._bench.environment
            )
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.lives[-1] = Life(exit_code=WAITING_EXIT, last_words=f"nobody could resolve it: {error}")
            return False
        return True

    def _live(self) -> Life:
        environment = {
            **self._bench.environment,
            "PYTHONPATH": _PATH,
            "SUREFOOT_DEMO_RUN": "incident-42",
            "SUREFOOT_DEMO_STATE": str(self.directory),
            "SUREFOOT_DEMO_MODEL": f"{self._bench.model}/{self._name}",
            "SUREFOOT_DEMO_WORLD": f"{self._bench.world}/{self._name}",
        }
        if not self.lives and self._armed is not None and self._armed.window is Window.RECORDED:
            environment["SUREFOOT_DEMO_DIE_AFTER"] = str(self._armed.step)
        command = [sys.executable, "-P", "-m", *self._policy.program]
        output = self.directory / f"life-{len(self.lives) + 1}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            if not self.lives:
                self._name_agent(process.pid)
            exit_code = _wait(process)
        words = "" if exit_code in (0, -signal.SIGKILL) else output.read_text(errors="replace").strip()[-600:]
        return Life(exit_code=exit_code, last_words=words)

    def _name_agent(self, pid: int) -> None:
        if self._armed is not None and self._armed.window is not Window.RECORDED:
            address = self._bench.world if self._armed.hits_tool else self._bench.model
            _put(address, f"/bench/{self._name}/agent", {"pid": pid})


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_LIFE_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return -signal.SIGTERM  # never -SIGKILL: that would look like the kill we came for


def _put(address: str, path: str, body: dict[str, object]) -> None:
    connection = HTTPConnection(address, timeout=20)
    try:
        connection.request("PUT", path, json.dumps(body))
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"the receiver at {address} refused {path}: {answer.status} {answer.read()!r}")
    finally:
        connection.close()
