"""The program that a framework's page prints, run as it stands: killed in the gap, started again, and counted.

A page that is only read goes stale. Where the model is, is told by the environment; `shop`, the client of what the
tool acts on, is the one module that a reader has to bring, and is brought here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from surefoot.testing.ledger import performed

from .kit import QUIET
from .layout import ROOT, Framework
from .measure import TIMED_OUT, environment
from .planners import page
from .rows import Kill
from .world import World

FEATURE = "program of its page"
SHOP = """
import json, urllib.request

def charge(order, headers):
    sent = {{**headers, "content-type": "application/json"}}
    request = urllib.request.Request("{url}/do/charge", json.dumps({{"order": order}}).encode(), sent)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["receipt"]

def screen():
    return "{dot}"
"""
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
"""A picture of one point, as base64 of a PNG."""


class Killed(NamedTuple):
    """What two lives of a program did: how they ended, charges at the shop, paid model calls, and all that was said."""

    ends: list[int]
    charges: int
    calls: int
    said: str

    def good(self, calls: int) -> bool:
        return self[:3] == ([-signal.SIGKILL, 0], 1, calls) and "order complete" in self.said


def program(framework: Framework) -> str:
    """The first program of its page; empty where it does not charge at a shop, or needs a program that is not here."""
    file = ROOT / "docs" / "frameworks" / framework.page
    found = re.search(r"(?ms)^```python\n(.*?)^```$", file.read_text("utf-8")) if file.is_file() else None
    text = found.group(1) if found and re.search(r"(?m)^import shop\b", found.group(1)) else ""
    return text if not framework.program.needs or shutil.which(framework.program.needs) else ""


def killed(text: str, framework: Framework, python: Path) -> Killed:
    """Run it, kill it when the charge is done and its reply has not left, and run it again."""
    with (
        tempfile.TemporaryDirectory(prefix="frameworks-") as folder,
        World(Path(folder), page, Kill(at="charge", when="after")) as world,
    ):
        work = Path(folder) / "work"
        work.mkdir()
        shop = SHOP.format(url=f"http://127.0.0.1:{world.shop.server_port}", dot=DOT)
        (work / "shop.py").write_text(shop, "utf-8")
        (work / "program.py").write_text(text, "utf-8")
        lives = [life(framework, python, work, world) for _ in range(2)]
        charges = performed(world.shop.ledger.lines())["charge"]
        said = "\n".join(output for _, output in lives)
        return Killed([end for end, _ in lives], charges, len(world.models.paid()), said)


def run_page(framework: Framework, version: str, python: Path) -> tuple[dict[str, list[int]], list[str]]:
    """[passed, failed], and what was wrong."""
    text = program(framework)
    if not text:
        return {}, []
    done, calls = killed(text, framework, python), framework.program.calls
    good = done.good(calls)
    counted = f"it ended with {done.ends}, {done.charges} charges, {done.calls} model calls"
    print(f"  the program of {framework.page}: {counted}{'' if good else '  <--'}", flush=True)
    fault = f"{counted}; [-9, 0], 1 and {calls} expected\n{done.said[-6000:]}"
    return {FEATURE: [int(good), int(not good)]}, [] if good else [f"{framework.name} ({version}), its page: {fault}"]


def life(framework: Framework, python: Path, work: Path, world: World) -> tuple[int, str]:
    """One life of the program: its exit status, negative for a signal, and its output."""
    process = subprocess.Popen(
        [python, "program.py"],
        cwd=work,
        env={**environment(framework), **QUIET, **where(world.models.url), "HOME": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    world.victim.is_(process.pid)
    try:
        said = process.communicate(timeout=framework.seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return TIMED_OUT, process.communicate()[0]
    return process.returncode, said


def where(models: str) -> dict[str, str]:
    """What tells each SDK where its model is."""
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"), "any")
    openai = dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_BASE"), f"{models}/v1")
    return {**keys, **openai, "ANTHROPIC_BASE_URL": models, "GOOGLE_GEMINI_BASE_URL": models}
