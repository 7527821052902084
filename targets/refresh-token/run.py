"""Replicas at once, and one that dies with the refresh; each row five times, each time in a world of its own."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from provider import provider

from surefoot.testing.ledger import read_ledger
from surefoot.testing.oauth import Fault, Promise, TokenEndpoint, digest_of
from targets.bench import Bench
from targets.person import SUREFOOT
from targets.results import Row, Verdict
from targets.supervise import begin, end

TRIES, ACCESS_SECONDS, SECONDS = 5, 3.0, 100.0
KEY = base64.b64encode(bytes(range(32))).decode()
ARMS = ("published", "Surefoot, its proxy before the token endpoint", "Surefoot, in the process")


@dataclass(frozen=True)
class Case:
    """`die`: where the first replica dies before the others come. `lost`: the provider's first answer is."""

    row: str
    promise: Promise = Promise.STRICT
    replicas: int = 2
    die: str = ""
    lost: bool = False


CASES = (
    Case("one replica", replicas=1),
    Case("two replicas, strict provider"),
    Case("two replicas, grace window", Promise.GRACE),
    Case("four replicas, strict provider", replicas=4),
    Case("four replicas, grace window", Promise.GRACE, replicas=4),
    Case("killed with the request sent, strict provider", die="sent"),
    Case("killed with the answer in hand, strict provider", die="received"),
    Case("killed between its two writes (or after the one), strict provider", die="between"),
    Case("killed with the request sent, grace window", Promise.GRACE, die="sent"),
    Case("killed with the answer in hand, grace window", Promise.GRACE, die="received"),
    Case("the provider's answer is lost, grace window", Promise.GRACE, lost=True),
    Case("the provider's answer is lost, strict provider", lost=True),
)


@dataclass
class Seen:
    """What one try came to."""

    exchanges: int
    failed: int
    is_broken: bool
    is_told: bool
    ends: list[int]

    def verdict(self, case: Case) -> Verdict:
        """The worst thing about it."""
        if self.is_told:
            return "told"
        if self.is_broken:
            return "stuck"
        if self.failed:
            return "wrong"
        # where nobody can know what became of an exchange, a grace window is there to ask for it once more
        allowed = 2 if case.promise is Promise.GRACE and (case.lost or case.die in ("sent", "received")) else 1
        return "twice" if self.exchanges > allowed else "once"


def measure(bench: Bench) -> Iterator[Row]:
    """Every case, every arm."""
    for case in CASES:
        for arm in ARMS:
            if bench.wants(arm):
                with ThreadPoolExecutor(TRIES) as pool:  # each in a world of its own; they mostly wait
                    tries = list(pool.map(partial(_try, bench, case, arm), range(TRIES)))
                yield _row(case, arm, tries)


def _row(case: Case, arm: str, tries: list[Seen]) -> Row:
    verdicts = [seen.verdict(case) for seen in tries]
    order: list[Verdict] = ["stuck", "twice", "wrong", "told", "once"]
    ends = Counter(str(code) for seen in tries for code in seen.ends)
    exchanges, failed = (sum(getattr(seen, name) for seen in tries) / len(tries) for name in ("exchanges", "failed"))
    broken = sum(seen.is_broken for seen in tries)
    faults = len(tries) if case.die or case.lost else 0
    killed = bool(case.die)
    return Row(
        row=case.row,
        arm=arm,
        ours=arm.startswith("Surefoot"),
        seen=f"{exchanges:.1f} / {failed:.1f} / {broken} of {len(tries)}",
        verdict=min(verdicts, key=order.index),
        tries=len(tries),
        good=sum(verdict in ("once", "told") for verdict in verdicts),
        fault="kill" if killed else "the provider acts and its answer is lost" if case.lost else "none",
        asked=faults,
        done=ends["-9"] if killed else faults,
        ends=dict(ends),
        counts={"exchanges": exchanges, "failed": failed, "broken": broken},
    )


def _try(bench: Bench, case: Case, arm: str, number: int) -> Seen:
    world = bench.world(f"{case.row}-{arm}-{number}")
    with ExitStack() as stack:
        endpoint, url = stack.enter_context(provider(world, case.promise, ACCESS_SECONDS))
        first = endpoint.authorize("service")["refresh_token"]
        env = {"STATE": str(world), "API_URL": url, "TOKEN_URL": f"{url}/token", "PROMISE": case.promise.value}
        env |= {"FIRST": first, "SUREFOOT_SECRET_KEY": KEY}
        if "proxy" in arm:
            promise = "grace:600" if case.promise is Promise.GRACE else "strict"
            env["TOKEN_URL"] = stack.enter_context(_proxy(world, f"idp={url}/token,{promise}"))
        file = "agent_surefoot.py" if "process" in arm else "agent_published.py"
        service = Service([sys.executable, bench.file(file)], world, env)
        service.connect(first)
        return _judged(case, service, endpoint, world, first)


def _judged(case: Case, service: Service, endpoint: TokenEndpoint, world: Path, first: str) -> Seen:
    if case.lost:
        endpoint.faults.append(Fault.ERROR)
    if case.die:
        assert service.together(1, DIE=case.die) == 0, "nobody was there to fail"
    failed = service.together(case.replicas)
    time.sleep(ACCESS_SECONDS + 0.2)  # one more expiry
    later = service.together(1)
    exchanges = sum(
        line.what == "exchanged" and line.key == digest_of(first) for line in read_ledger(world / "ledger.jsonl")
    )
    told = later > 0 and _is_told(world)
    return Seen(exchanges, failed, later > 0, told, service.ends)


def _is_told(world: Path) -> bool:
    """True if Surefoot's own list names the exchange, and the command that ends the doubt."""
    for store in (world / "proxy.db", world / "credentials.db"):
        if store.exists():
            command = [*SUREFOOT, "--db", os.fspath(store), "doubts"]
            shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return "surefoot resolve" in shown
    return False


class Service:
    """Replicas of one service, over one store."""

    def __init__(self, command: list[str], world: Path, env: dict[str, str]) -> None:
        self._command, self._world, self._env = command, world, env
        self.ends: list[int] = []
        self._started = 0

    def connect(self, first: str) -> None:
        """A person has signed in; the access token has expired since."""
        if self._command[-1].endswith("agent_surefoot.py"):
            subprocess.run([*self._command, "connect"], env={**os.environ, **self._env}, check=True)
            return
        (self._world / "token.json").write_text(f'{{"access_token": "", "refresh_token": "{first}", "expires_at": 0}}')

    def together(self, count: int, **more: str) -> int:
        """Start so many replicas, let them go at once, and count the requests that failed."""
        sign = self._world / f"go-{self._started}"
        outputs = [self._world / f"replica-{self._started + number}.txt" for number in range(count)]
        self._started += count
        env = {**self._env, **more, "GO": str(sign)}
        replicas = [begin(self._command, env=env, output=output) for output in outputs]
        time.sleep(1.0)  # they are up by then, or meet the sign on arrival
        sign.touch()
        self.ends += [end(replica, SECONDS) for replica in replicas]
        words = [line.split() for output in outputs for line in output.read_text().splitlines()]
        return sum(int(word[2]) for word in words if word[:1] == ["COUNT"])


@contextmanager
def _proxy(world: Path, token: str) -> Iterator[str]:
    """`surefoot proxy` as it is started by hand; gives the token endpoint's new address."""
    command = [*SUREFOOT, "proxy", "--port", "0", "--db", str(world / "proxy.db"), "--token", token]
    environment = {**os.environ, "SUREFOOT_SECRET_KEY": KEY}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().rpartition(" ")[2].strip()
    try:
        yield f"{url}/idp"
    finally:
        process.terminate()
        process.wait(60)
