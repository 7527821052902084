"""One agent under one engine in one world of its own: started, killed once, started again, and counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.envs import ENVIRONMENTS, ENVS
from engines.servers import Place
from surefoot.core.effect import Status
from surefoot.runtime.app import Surefoot
from surefoot.testing.models import Meets, ModelServer
from targets.shop import Json, Shop, Strike
from targets.supervise import Lives, supervise

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "engines" / "programs"
LIFE_SECONDS, LOOK_SECONDS = 150.0, 0.1
ANSWER = "order complete"
HONOURS_KEYS = ("published_key", "keyed")
LOST_CHILD = "signal 9 (SIGKILL)"
"""What Celery says of a process of its pool that was killed."""


class Services(Shop):
    """The shop, which an agent's own process may tell that it is the one to be killed."""

    models: ModelServer | None = None

    def serve(self, method: str, path: str, body: Json, headers: Any) -> Any:
        kind, _, pid = path.strip("/").partition("/")
        if kind != "victim":
            return super().serve(method, path, body, headers)
        self.victim_is(int(pid))
        return 200, {}

    def victim_is(self, pid: int) -> None:
        self.name_victim(pid)
        if self.models is not None:
            self.models.victim.is_(pid)


@dataclass(kw_only=True)
class Seen:
    """What one try showed."""

    lives: Lives = field(default_factory=Lives)
    kills: int = 0
    happened: dict[str, int] = field(default_factory=dict[str, int])
    calls: int = 0
    answer: str = ""
    parked: str = ""
    """The command that a person was told, where the run was parked."""
    at_park: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def counts(self) -> str:
        return "/".join(str(self.happened.get(op, 0)) for op in ("reserve", "charge", "confirm"))

    @property
    def right(self) -> bool:
        return self.lives.finished and self.answer == ANSWER

    @property
    def once(self) -> bool:
        return self.counts == "1/1/1" and self.right


@dataclass(frozen=True, kw_only=True)
class Try:
    """One engine, one arm, one row."""

    engine: str
    program: str
    place: Place
    arm: str
    row: str
    order: str
    db: str
    """Where Surefoot's store is: a URL, or a file's name."""
    own_victim: bool = False
    """True where the agent's program says itself which of its processes is to be killed, and lives on."""


def perform(this: Try, folder: Path) -> Seen:
    """Do it; whatever is counted is read from the services' ledgers."""
    seen = Seen()
    strikes = [Strike("charge")] if this.row == "gap" else []
    with (
        ModelServer(record=folder / "paid.jsonl") as models,
        Services(folder / "ledger.jsonl", honours_keys=this.arm in HONOURS_KEYS, strikes=strikes) as shop,
    ):
        shop.models = models
        if this.row == "model":
            models.at(3, Meets(kill="after"))
        env = environment(this, folder, models.url, shop.base)
        person = Person(this, env, shop, seen) if this.arm == "opaque" and this.row == "gap" else None
        if person is not None:
            person.thread.start()
        seen.lives = supervise(
            command(this),
            folder=folder,
            env=env,
            lives=4,
            seconds=LIFE_SECONDS,
            born=(lambda pid: None) if this.own_victim else shop.victim_is,
            between=lambda so_far: (so_far.killed == 1 and so_far.ends[-1] == -9) or again(so_far, person),
        )
        if person is not None:
            person.over.set()
            person.thread.join()
        seen.happened, seen.calls = shop.happened(), len(models.paid())
    seen.kills = seen.lives.killed + lost_children(folder) if this.own_victim else seen.lives.killed
    out = folder / "out.json"
    seen.answer = json.loads(out.read_text())["answer"] if out.exists() else ""
    return seen


def again(so_far: Lives, person: Person | None) -> bool:
    """A script that says "later" is started again when a person has decided."""
    return so_far.waits and person is not None and person.decided.wait(60)


def lost_children(folder: Path) -> int:
    log = folder / "out.json.worker.txt"
    return 1 if log.exists() and LOST_CHILD in log.read_text(errors="replace") else 0


def command(this: Try) -> list[str]:
    env = ENVIRONMENTS.get(this.engine)
    return [str(env.python) if env is not None else sys.executable, str(PROGRAMS / this.program)]


def environment(this: Try, folder: Path, model: str, shop: str) -> dict[str, str]:
    path = os.pathsep.join((str(ROOT / "src"), str(PROGRAMS)))
    return {
        **this.place,
        "ARM": this.arm,
        "ORDER": this.order,
        "MODEL": model,
        "SHOP": shop,
        "DB": this.db if "://" in this.db else str(folder / this.db),
        "OUT": str(folder / "out.json"),
        "WORLD": str(folder),
        "PYTHONPATH": path,
        "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX", str(ENVS / "bytecode")),
    }


class Person:
    """Looks whether an effect is parked, looks into the shop's ledger, and resolves it with the command line."""

    def __init__(self, this: Try, env: dict[str, str], shop: Shop, seen: Seen) -> None:
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.over, self.decided = threading.Event(), threading.Event()
        self._this, self._db, self._shop, self._seen = this, env["DB"], shop, seen

    def _work(self) -> None:
        while not self.over.wait(LOOK_SECONDS):
            if "://" not in self._db and not Path(self._db).exists():
                continue
            found = self._parked()
            if found is not None:
                self._decide(*found)
                return

    def _parked(self) -> tuple[str, str] | None:
        """(run, key) of a parked effect whose run is waiting."""
        try:
            with Surefoot(self._db) as sf:
                for effect in sf.store.find_effects([Status.PARKED]):
                    run = sf.store.find_run(effect.run)
                    if run is not None and run.status == "waiting":
                        return run.id, effect.key
        except Exception as error:
            print(f"  the person could not look yet: {error}", file=sys.stderr)
            time.sleep(0.5)
        return None

    def _decide(self, run: str, key: str) -> None:
        self._seen.at_park = self._shop.happened()
        receipt = f"receipt:charge:{self._shop.lines('performed', 'charge')[0].number}"
        line = ["resolve", run, key[:12], "--happened", json.dumps(receipt), "--why", "it is in the shop's ledger"]
        program = str(Path(sys.executable).with_name("surefoot"))
        done = subprocess.run([program, *line, "--db", self._db], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"surefoot resolve failed: {done.stdout}{done.stderr}")
        self._seen.parked = "surefoot resolve RUN EFFECT --happened RECEIPT --why TEXT"
        self.decided.set()
