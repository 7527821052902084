"""The whole test: clean runs that must agree, then every row, several worlds at once, each judged as it ends."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path

from .boundary import Arrival, difference, reordered
from .config import Config
from .errors import CrashtestError
from .judge import Expected, Verdict, expect, judge
from .observed import Observed
from .rows import CLEAN, Row, rows_of
from .services.opening import opener_of
from .starting import Starter
from .supervise import Bench, Proxied, run_row
from .world import listed

FIRST_RUN_SECONDS_MAX = 600.0
NO_TERMINAL = re.compile(
    r"not a tty|not a terminal|isatty|inappropriate ioctl|EOF when reading a line|EOFError|no tty", re.I
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything that was found. `warnings` are said once and fail nothing."""

    title: str
    config: Config
    boundaries: list[Arrival]
    verdicts: list[Verdict]
    expected: Expected
    clean_seconds: float
    seconds: float
    jobs: int
    warnings: list[str] = field(default_factory=list[str])

    @property
    def faults(self) -> list[Verdict]:
        """Rows that prove nothing."""
        return [verdict for verdict in self.verdicts if verdict.fault]

    @property
    def unreached(self) -> list[Verdict]:
        """Rows that tested nothing, because the agent had ended before."""
        return [verdict for verdict in self.verdicts if verdict.unreached and not verdict.fault]

    @property
    def failing(self) -> list[Verdict]:
        """Rows that are not as the clean run, whatever is tolerated."""
        return [verdict for verdict in self.verdicts if verdict.fails and not verdict.fault]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What is told while it runs; each may be shown or not."""

    cleaned: Callable[[Sequence[Arrival], int], None] = lambda arrivals, rows: None
    judged: Callable[[Verdict], None] = lambda verdict: None


@contextlib.contextmanager
def open_bench(
    config: Config, *, folder: Path | None = None, proxied: Proxied | None = None, disarmed: bool = False
) -> Generator[Bench]:
    """What all rows share, in a folder that goes when this ends unless it is given."""
    own = tempfile.mkdtemp(prefix="surefoot-crashtest-") if folder is None else None
    place = Path(own) if own is not None else folder
    assert place is not None
    place.mkdir(parents=True, exist_ok=True)
    starter = Starter(fork=config.fork, preload=config.preload, folder=place)
    try:
        yield Bench(
            config=config,
            opener=opener_of(config),
            starter=starter,
            folder=place,
            files=listed(config, results=place),
            timeout_seconds=config.timeout_seconds or FIRST_RUN_SECONDS_MAX,
            proxied=proxied,
            disarmed=disarmed,
        )
    finally:
        starter.close()
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


def run_clean(bench: Bench) -> tuple[list[Observed], list[str]]:
    """The clean runs, and what is to be said about them. Raises CrashtestError when they cannot be the measure."""
    runs: list[Observed] = []
    warnings: list[str] = []
    for _ in range(max(1, bench.config.clean_runs)):
        seen, world = run_row(bench, CLEAN, watch_foreign=not runs)
        shutil.rmtree(world.folder, ignore_errors=True)
        if runs:
            _must_agree(runs[0], seen)
        complain(seen, bench.config)
        runs.append(seen)
    first = runs[0]
    for other in runs[1:]:
        if reordered(first.arrivals, other.arrivals):
            warnings.append(
                "requests come in another order from run to run; boundaries are found by name and occurrence"
            )
        if first.performed != other.performed:
            raise CrashtestError(
                f"two clean runs differ in what they did: {dict(first.performed)} and {dict(other.performed)}; "
                "name effects "
                "by what they are about (effect = 'charge {body.order}'), not by ids that are new each time"
            )
    unstable = sorted(set(first.contents) - set(expect(first, runs[-1]).contents))
    if unstable:
        warnings.append(f"the content of {', '.join(unstable)} differs from run to run, so it is not compared")
    if first.foreign:
        warnings.append(
            f"the agent also connected to {', '.join(first.foreign[:3])}, which no service stands for: those "
            "requests are real"
        )
    if first.left_children:
        warnings.append(
            f"the agent left {first.left_children} processes behind when it ended; they were killed each time"
        )
    if first.refused:
        warnings.append(f"the model was asked what a real endpoint refuses: {first.refused[0]}")
    return runs, warnings


def _must_agree(first: Observed, other: Observed) -> None:
    differs = difference(first.arrivals, other.arrivals)
    if differs:
        raise CrashtestError(
            f"two clean runs differ: {differs}. Nothing can be compared with them. If it differs by ids or times, "
            "cut them "
            "out by `ignore`; if the second run does less, the agent keeps state outside of its world: put it "
            "below {dir}; "
            "if the model is a real one, record it"
        )


def complain(seen: Observed, config: Config) -> None:
    """Raises CrashtestError for a clean run that nothing can be compared with, and says what to do about it."""
    last = seen.lives[-1]
    words = last.words[-800:] or "it printed nothing"
    if last.exit_code != 0 and NO_TERMINAL.search(last.words):
        raise CrashtestError(
            f"the agent needs a terminal, and a supervisor gives it none: {words}; start it without questions"
        )
    if seen.unrouted:
        raise CrashtestError(f"no service answers for {seen.unrouted[0]}: give one hosts = [{seen.unrouted[0]!r}]")
    if seen.unmatched:
        raise CrashtestError(f"a request of the clean run has no answer: {seen.unmatched[0]}")
    if last.hung:
        raise CrashtestError(
            f"the clean run did not end in {last.seconds:.0f} s: {words}; if it needs longer, raise "
            "timeout_seconds; if it "
            "serves for ever, test the command that does one piece of work"
        )
    if not seen.arrivals:
        raise CrashtestError(_no_requests(seen, config, words))
    if last.exit_code != 0:
        raise CrashtestError(
            f"the clean run ended with exit code {last.exit_code}: {words}; it must end well when nobody kills it"
        )
    if seen.answer_right is False:
        raise CrashtestError(f"the answer of the clean run is wrong already: {_not_right(seen, config)}")
    if seen.still_running:
        raise CrashtestError(
            f"after the clean run its status says {seen.status!r}, which `running` matches; change one of them"
        )


def _not_right(seen: Observed, config: Config) -> str:
    if seen.checked:
        return f"the check said no: {seen.answer_words or 'it printed nothing'}"
    printed = seen.answer_words[-300:] or "nothing"
    return f"answer = {config.answer!r} is not found in what it printed: {printed}; change one of them"


def _no_requests(seen: Observed, config: Config, words: str) -> str:
    ways = "; ".join(
        f"{name} by {', '.join(s.env) or ', '.join(s.hosts) or 'nothing'}" for name, s in config.services.items()
    )
    direct = f" It connected to {', '.join(seen.foreign[:3])} directly." if seen.foreign else ""
    if not config.services:
        return "there are no services, so nothing can be seen: add [services.NAME] to crashtest.toml"
    if config.proxy:
        return (
            f"the agent makes no requests through the proxy.{direct} It ignores HTTPS_PROXY: Node before 22.21 needs "
            "NODE_OPTIONS=--require with a proxy agent, httpx needs trust_env, aiohttp trust_env=True; or give "
            "its base URL "
            f"by a variable: [services.NAME] env = {{ … }}. It printed: {words}"
        )
    return (
        f"the agent makes no requests.{direct} It is led to {ways}: check that it reads these variables, or let "
        "it be seen by "
        f"proxy = true and hosts. It printed: {words}"
    )


def run_matrix(
    config: Config,
    *,
    only_row: Row | None = None,
    folder: Path | None = None,
    proxied: Proxied | None = None,
    disarmed: bool = False,
    keep: bool = False,
    progress: Progress | None = None,
    jobs: int = 1,
) -> Result:
    """The clean runs and every row. Raises CrashtestError when there is nothing to compare with."""
    progress = progress or Progress()
    started = time.monotonic()
    with open_bench(config, folder=folder, proxied=proxied, disarmed=disarmed) as bench:
        runs, warnings = run_clean(bench)
        expected = expect(runs[0], runs[-1] if len(runs) > 1 else None)
        rows = [only_row] if only_row is not None else rows_of(config, runs[0].arrivals)
        if not rows:
            names = ", ".join(a.boundary for a in runs[0].arrivals[:8])
            raise CrashtestError(f"only and skip leave no boundary; there are {names}")
        progress.cleaned(runs[0].arrivals, len(rows))
        slow = max(run.seconds for run in runs)
        last = max(runs[0].arrivals, key=lambda a: a.number).boundary
        seconds = config.timeout_seconds or max(20.0, 10 * slow)
        bench = replace(bench, timeout_seconds=seconds, last_boundary=last)
        verdicts = judge_rows(bench, rows, expected, progress=progress, jobs=jobs, keep=keep)
    return Result(
        title=config.title,
        config=config,
        boundaries=sorted(runs[0].arrivals, key=lambda a: a.number),
        verdicts=verdicts,
        expected=expected,
        clean_seconds=min(run.seconds for run in runs),
        seconds=time.monotonic() - started,
        jobs=jobs,
        warnings=warnings,
    )


def judge_rows(
    bench: Bench, rows: Sequence[Row], expected: Expected, *, progress: Progress, jobs: int, keep: bool = False
) -> list[Verdict]:
    """Each row in a world of its own, `jobs` at a time; verdicts in the order of the rows."""

    def one(row: Row) -> Verdict:
        seen, world = run_row(bench, row)
        verdict = judge(seen, expected)
        if not keep:
            shutil.rmtree(world.folder, ignore_errors=True)
        return verdict

    found: dict[Row, Verdict] = {}
    with ThreadPoolExecutor(jobs) as pool:
        waiting: dict[Future[Verdict], Row] = {pool.submit(one, row): row for row in rows}
        try:
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    found[waiting.pop(future)] = verdict = future.result()
                    progress.judged(verdict)
        finally:
            pool.shutdown(cancel_futures=True)
    return [found[row] for row in rows]
