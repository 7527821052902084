"""Breaks each safety rule of the inbox on purpose, one at a time in a copy of the code, and says which test goes red.

    python -m tests.inbox.broken_on_purpose              # all, some minutes
    python -m tests.inbox.broken_on_purpose fingerprint  # those whose description holds the word

Exits 1 if a change survives.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 240


class Change(NamedTuple):
    """In `file`, `old` (which stands there) becomes `new`; `tests` are those that should see it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


KILLED, SERVICE, CONCURRENT, ONCE = (
    f"test_{n}.py" for n in ("killed_services", "service", "concurrent_services", "once")
)
CHANGES = [
    Change(
        "no unique constraint: every claim is inserted",
        "queries.sql",
        "\nON CONFLICT (scope, request_key) DO NOTHING|    PRIMARY KEY (scope, request_key),\n",
        "",
        f"{CONCURRENT} -k 64",
    ),
    Change(
        "once without a unique constraint",
        "queries.sql",
        "\nON CONFLICT (scope, request_key) DO NOTHING|    PRIMARY KEY (scope, request_key),\n",
        "",
        f"{ONCE} -k eight",
    ),
    Change(
        "once stores the result in a transaction after the change's",
        "once.py",
        "            done = yield from self._wire.execute(",
        "            yield from self._wire.commit()\n            done = yield from self._wire.execute(",
        ONCE,
    ),
    Change(
        "once commits the key before the change",
        "once.py",
        "                yield from self._refuse_autocommit()\n",
        "                yield from self._wire.commit()\n",
        f"{KILLED} -k transactional",
    ),
    Change("once compares no request", "once.py", "if digest != self._digest:", "if False:", ONCE),
    Change(
        "once commits an open transaction", "once.py", "if self._commits and self._wire.is_open():", "if False:", ONCE
    ),
    Change("no fingerprint", "rules.py", "if found.digest != asked.digest:", "if False:", SERVICE),
    Change(
        "the client is not in the scope",
        "request.py",
        'client.encode("utf-8", "surrogatepass")',
        'b""',
        SERVICE,
    ),
    Change(
        "a lost plain handler is run again",
        "rules.py",
        "return found.transactional and asked.transactional",
        "return True",
        KILLED,
    ),
    Change(
        "a lost transactional handler is not run again",
        "rules.py",
        "return found.transactional and asked.transactional",
        "return False",
        KILLED,
    ),
    Change(
        "the answer leaves before it is stored",
        "middleware.py",
        "        ending = self._middleware.answered(",
        "        await self._pass_on(status, headers, body)\n        ending = self._middleware.answered(",
        KILLED,
    ),
    Change(
        "the answer is not stored",
        "rules.py",
        "    mine, move, result = ending.claim, ending.move, ending.result\n",
        "    return None\n    mine, move, result = ending.claim, ending.move, ending.result\n",
        SERVICE,
    ),
    Change(
        "the heartbeat renews nothing",
        "claims.py",
        "                if running:\n",
        "                if False:\n",
        f"{CONCURRENT} -k heartbeat",
    ),
    Change(
        "everybody else counts as gone",
        "rules.py",
        "if claim.standing is not Standing.RUNNING or view.owner_is_gone",
        "if True or view.owner_is_gone",
        f"{CONCURRENT} -k 64",
    ),
    Change(
        "a late answer is dropped",
        "rules.py",
        "    (Standing.IN_DOUBT, Move.ANSWER): Standing.ANSWERED,  # late, or a person's word\n",
        "",
        f"{CONCURRENT} -k slow",
    ),
    Change(
        "the fence is not compared",
        "rules.py",
        "if found.stamp != mine.stamp and not",
        "if False and not",
        "test_rules.py",
    ),
    Change(
        "a plain handler that failed is run again",
        "middleware.py",
        "Move.RELEASE if claim.transactional or nothing_happened else Move.LOSE",
        "Move.RELEASE",
        SERVICE,
    ),
    Change(
        "a doubt expires",
        "rules.py",
        "settled = claim.standing in (Standing.ANSWERED, Standing.RELEASED)",
        "settled = True",
        SERVICE,
    ),
    Change(
        "a transactional handler need not use once",
        "middleware.py",
        "if not self._claim.transactional or self._call.used_once:",
        "if True:",
        SERVICE,
    ),
    Change("cookies are replayed", "answers.py", '("content-type", ', '("set-cookie", "content-type", ', SERVICE),
    Change(
        "a client that leaves stops its handler",
        "exchange.py",
        "        await self._over.wait()\n",
        "",
        f"{SERVICE} -k stream",
    ),
    Change(
        "what could not be recorded is forgotten",
        "claims.py",
        "                self._unrecorded.append(ending)\n",
        "                pass\n",
        f"{CONCURRENT} -k back",
    ),
]


def broken_copy(change: Change, folder: Path) -> Path:
    """A copy of the package in which the change was made."""
    shutil.copytree(ROOT / "src" / "surefoot", folder / "surefoot", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "surefoot" / "inbox" / change.file
    text = file.read_text("utf-8")
    for old in change.old.split("|"):
        assert old in text, f"{change.what}: {change.file} has no {old!r}"
        text = text.replace(old, change.new)
    file.write_text(text, "utf-8")
    return folder


def first_red(change: Change) -> str:
    """The first test that failed, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        place = broken_copy(change, Path(folder))
        words = change.tests.split(" ", 1)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", "30", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, f"tests/inbox/{words[0]}", *(words[1].split() if words[1:] else [])],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(place)},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        found = re.search(r"^(?:FAILED|ERROR) tests/inbox/(\S+)", done.stdout, re.MULTILINE)
        timed_out = re.search(r"(test_\w+\.py)\", line \d+, in (test_\w+)", done.stdout + done.stderr)
        return found[1] if found else (f"{timed_out[1]}::{timed_out[2]} (hangs)" if timed_out else "")


def main(words: list[str]) -> int:
    """Try each change that a word picks; all must still fit the code."""
    with tempfile.TemporaryDirectory() as folder:
        for number, change in enumerate(CHANGES):
            broken_copy(change, Path(folder) / str(number))
    survivors = 0
    for change in CHANGES:
        if words and not any(word in change.what for word in words):
            continue
        red = first_red(change)
        survivors += not red
        print(f"{'red     ' if red else 'SURVIVED'}  {change.what}: {red}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
