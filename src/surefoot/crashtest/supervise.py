"""Runs one row in a world of its own: starts the command as a supervisor would, until it ends well or is given up."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..testing.ledger import Ledger
from .config import Config, Words, fill, words_of
from .errors import CrashtestError
from .gateway import Gateway
from .observed import Life, Observed
from .plan import Plan
from .process import Agent, marked, send, state_of, sweep
from .rows import Row
from .services.opening import Opener
from .sockets import foreign_peers
from .starting import Starter
from .world import World, environment, make_world, places_of

WORDS_MAX = 2_000
COMMAND_SECONDS_MAX = 60.0
ATTEMPTS_AFTER_A_REPLY = 6  # an agent that ends with its last reply races the kill
Proxied = Callable[[str], contextlib.AbstractContextManager[Mapping[str, str]]]
"""Takes a gateway's address, and gives the variables that lead an agent there while it is open."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all rows share. After the `last_boundary` the agent makes no request that a kill could wait for."""

    config: Config
    opener: Opener
    starter: Starter
    folder: Path
    files: list[tuple[Path, bool]]
    timeout_seconds: float
    last_boundary: str = ""
    proxied: Proxied | None = None
    disarmed: bool = False
    keep: bool = False


class RowRun:
    """One row under way."""

    def __init__(self, bench: Bench, row: Row, *, watch_foreign: bool = False, at_its_exit: bool = False) -> None:
        """A fresh world, with its services listening."""
        config = bench.config
        self.bench, self.config, self.row, self.plan = bench, config, row, Plan(row)
        name = uuid.uuid4().hex[:12]
        self.world = make_world(bench.folder / name, f"SUREFOOT_CRASHTEST_WORLD_{name}", config, bench.files)
        self.ledger = Ledger(self.world.ledger)
        backends = {n: bench.opener.open(n, self.world.folder, self.ledger) for n in config.services}
        self.gateway = Gateway(
            backends,
            self.plan,
            models=frozenset(n for n, s in config.services.items() if s.is_model),
            ports={n: s.port for n, s in config.services.items()},
            hosts={n: s.hosts for n, s in config.services.items()},
            ignore=config.ignore,
            marker=self.world.marker,
            late_seconds=config.late_seconds,
            settle_seconds=config.settle_ms / 1000,
            at_its_exit=at_its_exit,
            disarmed=bench.disarmed,
        )
        self.seen = Observed(
            row=row, asks_exit=frozenset(config.asks_exit), recorded=bench.opener.exchanges is not None
        )
        self._foreign: set[str] | None = set() if watch_foreign else None
        self._lives = self._first_pid = 0
        self._lock = threading.Lock()
        self._proxy: Mapping[str, str] = {}

    def run(self) -> Observed:
        """The whole row. Raises CrashtestError for what no row could survive, such as a command that does not start."""
        proxied = self.bench.proxied
        try:
            with contextlib.ExitStack() as stack:
                if proxied is not None:
                    self._proxy = stack.enter_context(proxied(self.gateway.proxied))
                if self.config.setup is not None:
                    self._must(self.config.setup, "setup")
                match self.row.kind:
                    case "pause":
                        self._pause()
                    case "replicas":
                        self._replicas()
                    case _:
                        self._supervise()
                self.gateway.settle()
                self._end()
        finally:
            if self._first_pid:
                sweep(self.world.marker, self._first_pid)
            self.gateway.close()
            self.ledger.close()
        return self.seen

    # --- lives ------------------------------------------------------------------------------------------------------

    def _supervise(self) -> Life:
        """The same command again, until it ends well, asks and nobody answers, hangs, or is given up; the last life."""
        life = self._live()
        for _ in range(self.config.restarts):
            if life.exit_code == 0 or life.hung:
                break
            if life.exit_code in self.config.asks_exit:
                if self.config.person is None:
                    break
                self._aside(self.config.person)
            life = self._live()
        return life

    def _live(self, *, watch: Callable[[Agent], None] | None = None, seconds_max: float | None = None) -> Life:
        with self._lock:
            self._lives += 1
            number = self._lives
            if self.row.kind != "replicas":
                self.gateway.life = number
        command = self._command(number)
        env = environment(self.config, self.world, self.gateway.urls, number, self._proxy)
        started = time.monotonic()
        agent = self.bench.starter.start(command, cwd=self.world.here, env=env, output=self.world.output(str(number)))
        self._first_pid = self._first_pid or agent.pid
        self.gateway.name_agent(number, agent.pid)
        if watch is not None:
            watch(agent)
        if self._foreign is not None:
            self._watch_foreign(agent)
        code = agent.wait(seconds_max or self.bench.timeout_seconds)
        hung = code is None
        if code is None:
            send(agent.pid, signal.SIGCONT)
            send(agent.pid, signal.SIGKILL)
            code = -signal.SIGTERM  # never -SIGKILL: that would look like the kill we came for
            agent.wait(30.0)
        self.gateway.forget_agent(number)
        life = Life(
            number=number,
            command=shlex.join(command),
            exit_code=code,
            started=started,
            ended=time.monotonic(),
            killed=number in self.gateway.killed,
            hung=hung,
            words=self._words(number),
        )
        with self._lock:
            self.seen.lives.append(life)
        return life

    def _command(self, number: int) -> list[str]:
        is_new = self.row.kind == "deploy" and number > 1
        words = words_of(self.config.new_command if is_new else self.config.command)
        places = places_of(self.config, self.world, self.gateway.urls, number)
        return [fill(word, places) for word in words]

    def _words(self, number: int) -> str:
        try:
            return self.world.output(str(number)).read_text(errors="replace").strip()[-WORDS_MAX:]
        except OSError:
            return ""

    def _watch_foreign(self, agent: Agent) -> None:
        held = self._foreign
        assert held is not None

        def look() -> None:
            while state_of(agent.pid) not in ("", "Z", "X"):
                held.update(foreign_peers({agent.pid, *marked(self.world.marker, agent.pid)}))
                time.sleep(0.02)

        threading.Thread(target=look, daemon=True).start()

    # --- rows that are no single kill -------------------------------------------------------------------------------

    def _pause(self) -> None:
        """One stands still past its lease, another one takes over and ends; then the first one goes on."""
        named = threading.Event()
        first: list[int] = []

        def watch(agent: Agent) -> None:
            first.append(agent.pid)
            named.set()

        def live() -> None:
            try:
                self._live(watch=watch, seconds_max=(3 + self.config.restarts) * self.bench.timeout_seconds)
            except CrashtestError:
                named.set()

        paused = threading.Thread(target=live, daemon=True)
        paused.start()
        named.wait(30.0)
        while paused.is_alive() and not self.plan.paused.wait(0.05):
            continue
        if self.plan.paused.is_set() and first:
            self.seen.paused = _is_stopped(first[0])
            time.sleep(self.config.pause_seconds)
            self._supervise()
            self.seen.paused = self.seen.paused and _is_stopped(first[0])
            send(first[0], signal.SIGCONT)
        self.plan.resumed.set()
        paused.join(self.bench.timeout_seconds + 60.0)
        self.seen.lives.sort(key=lambda life: life.number)

    def _replicas(self) -> None:
        """All start together, and each has a supervisor of its own."""
        errors: list[CrashtestError] = []
        lasts: list[Life] = []

        def supervise() -> None:
            try:
                lasts.append(self._supervise())
            except CrashtestError as error:
                errors.append(error)

        threads = [threading.Thread(target=supervise, daemon=True) for _ in range(self.row.copies)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        firsts = sorted(self.seen.lives, key=lambda life: life.started)[: self.row.copies]
        worst = next((life for life in lasts if life.hung or life.exit_code), lasts[-1])
        self.seen.lives.sort(key=lambda life: (life is worst, life.number))  # the last one is judged
        self.seen.overlapped = max(life.started for life in firsts) < min(life.ended for life in firsts)

    # --- around it --------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """When no agent lives any more: what is left, what it says, and whether the answer is right."""
        seen, config = self.seen, self.config
        seen.left_children = len(sweep(self.world.marker, self._first_pid))
        self._first_pid = 0
        if config.check is not None:
            code, words = self._aside(config.check)
            seen.answer_right, seen.answer_words, seen.checked = code == 0, words, code != 0
        if config.answer is not None and seen.answer_right is not False:
            last = seen.lives[-1].words if seen.lives else ""
            seen.answer_right = re.search(config.answer, last) is not None
            seen.answer_words = last if seen.answer_right is False else ""
        if config.status is not None:
            _, seen.status = self._aside(config.status)
            seen.still_running = re.search(config.running, seen.status) is not None
        seen.arrivals, seen.lines, seen.struck = self.gateway.arrivals, self.ledger.lines(), self.plan.struck()
        seen.missed = frozenset(self.gateway.missed)
        seen.strays, seen.refused = self.gateway.strays, self.gateway.refused
        seen.unmatched, seen.unrouted = self.gateway.unmatched, self.gateway.unrouted
        seen.foreign = sorted(self._foreign or ())

    def _aside(self, command: Words) -> tuple[int, str]:
        """One of the user's commands beside the agent; (exit code, what it printed)."""
        places = places_of(self.config, self.world, self.gateway.urls, self._lives)
        words = [fill(word, places) for word in words_of(command)]
        env = environment(self.config, self.world, self.gateway.urls, self._lives)
        env.pop(self.world.marker)
        env["SUREFOOT_CRASHTEST_OUTPUT"] = str(self.world.output(str(self._lives)))
        env["SUREFOOT_CRASHTEST_LEDGER"] = str(self.world.ledger)
        return run_aside(words, cwd=self.world.here, env=env)

    def _must(self, command: Words, what: str) -> None:
        code, words = self._aside(command)
        if code:
            raise CrashtestError(
                f"{what} failed with exit code {code}: {words or 'it printed nothing'}; run it by hand"
            )


def run_aside(words: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a command to its end; (exit code, what it printed). One that takes a minute is ended, with code 124."""
    try:
        process = subprocess.Popen(
            list(words),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CrashtestError(f"the command {shlex.join(words)!r} does not start: {error}; it is run in {cwd}") from None
    try:
        out, _ = process.communicate(timeout=COMMAND_SECONDS_MAX)
        return process.returncode, out.decode(errors="replace").strip()[-WORDS_MAX:]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        return 124, out.decode(errors="replace").strip()[-WORDS_MAX:]


def _is_stopped(pid: int) -> bool:
    give_up = time.monotonic() + 5.0
    while time.monotonic() < give_up:
        if state_of(pid) == "T":
            return True
        time.sleep(0.005)
    return False


def run_row(bench: Bench, row: Row, *, watch_foreign: bool = False) -> tuple[Observed, World]:
    """Run one row. An agent that had ended by itself before its `recorded` kill came is held at its exit then."""
    attempts = ATTEMPTS_AFTER_A_REPLY if row.window in ("read", "recorded") else 1
    for attempt in range(1, attempts + 1):
        run = RowRun(
            bench, row, watch_foreign=watch_foreign, at_its_exit=attempt > 1 or row.boundary == bench.last_boundary
        )
        seen = run.run()
        seen.attempts = attempt
        if attempt == attempts or any(life.proved for life in seen.lives) or not seen.struck:
            return seen, run.world
    raise AssertionError("unreachable")
