"""Breaks the scripted model, the durable computer and the harness on purpose, and says which test goes red.

    python -m tests.frameworks.broken_on_purpose         # all, some minutes
    python -m tests.frameworks.broken_on_purpose screen  # those whose description holds the word

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
SECONDS_MAX = 900


class Change(NamedTuple):
    """In `file`, `old` (which stands there once) becomes `new`; `tests` are those that should see it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


MODELS, SERVICE, SERVER = (
    "tests/models",
    "src/surefoot/testing/models/service.py",
    "src/surefoot/testing/models/server.py",
)
CUA, COMPUTER = "tests/integrations_cua", "src/surefoot/integrations/cua.py"
HARNESS = "tests/frameworks"
CHANGES = [
    Change(
        "the answer leaves before it is recorded as paid",
        SERVER,
        '        return Silence() if self._dead("after", meets, number) else answer',
        "        return answer",
        f"{MODELS}/test_the_server.py -k kill",
    ),
    Change(
        "a request's number is how many were answered before",
        SERVICE,
        "        return replace(dialect.read(self._continued(body), path), number=number)",
        "        return replace(dialect.read(self._continued(body), path), number=len(self.paid()) + 1)",
        f"{MODELS}/test_the_server.py -k numbered",
    ),
    Change(
        "a tool call without a result is answered",
        "src/surefoot/testing/models/chat.py",
        '    return _unanswered(waiting) if waiting else ""',
        '    return ""',
        f"{MODELS}/test_openai_sees_a_model.py -k chat_endpoint",
    ),
    Change(
        "an injected failure is paid",
        SERVICE,
        'self._note("failed", ask, {"status": meets.error})',
        'self._note("paid", ask, {"status": meets.error})',
        f"{MODELS}/test_openai_sees_a_model.py -k rate_limit",
    ),
    Change(
        "two answers have the same ids",
        SERVICE,
        "        nonce = uuid.uuid4().hex\n",
        '        nonce = f"{len(ask.turns):032x}"\n',
        f"{MODELS}/test_openai_sees_a_model.py -k ids",
    ),
    Change(
        "a screen is not recorded",
        COMPUTER,
        '    return "read" if name in READS else natural() if name in HARMLESS else default',
        "    return False if name in READS else natural() if name in HARMLESS else default",
        f"{CUA} -k seen_again",
    ),
    Change(
        "a click of which nothing is known is harmless",
        COMPUTER,
        '    return "read" if name in READS else natural() if name in HARMLESS else default',
        '    return "read" if name in READS else default or natural()',
        f"{CUA} -k person",
    ),
    Change(
        "a rule for a method is not looked at",
        COMPUTER,
        "    if name in said:\n        return said[name]\n",
        "",
        f"{CUA} -k key",
    ),
    Change(
        "a tuple comes back as a list",
        COMPUTER,
        'return tuple(held["tuple"])',
        'return held["tuple"]',
        f"{CUA} -k seen_again",
    ),
    Change(
        "a kill that did not happen is no fault",
        "frameworks/measure.py",
        "    if measured.kills != ROWS[measured.row].kills:",
        "    if measured.kills > ROWS[measured.row].kills:",
        f"{HARNESS}/test_the_harness.py -k without_its_kill",
    ),
    Change(
        "model calls that are paid again are no fault",
        "frameworks/measure.py",
        "    if clean_calls and measured.model_calls >",
        "    if clean_calls and 1 >",
        f"{HARNESS}/test_the_harness.py -k keys_alone",
    ),
    Change(
        "the shop does not note what it does for the second time",
        "frameworks/world.py",
        'shop.receiver.send("keyed" if key else "opaque", op, body, key=key)',
        'shop.receiver.send("keyed", op, body, key=key or op)',
        f"{HARNESS}/test_the_harness.py -k repeats",
    ),
]


def broken_copy(change: Change, folder: Path) -> Path:
    """A copy of what the tests need, in which the change was made."""
    ignore = shutil.ignore_patterns("__pycache__", ".envs")
    for part in ("src", "frameworks", "docs/frameworks", *change.tests.split(" ")[0].partition("/test_")[:1]):
        shutil.copytree(ROOT / part, folder / part, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    file = folder / change.file
    text = file.read_text("utf-8")
    assert text.count(change.old) == 1, f"{change.what}: {change.file} has it {text.count(change.old)} times"
    file.write_text(text.replace(change.old, change.new), "utf-8")
    return folder


def first_red(change: Change) -> str:
    """The first test that failed, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        place = broken_copy(change, Path(folder))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", "90", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, *change.tests.split(" ")],
            cwd=place,
            env={**os.environ, "PYTHONPATH": f"{place / 'src'}:{place}"},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        found = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE)
        return found[1] if found else ""


def main(words: list[str]) -> int:
    """Try each change that a word picks; all must still fit the code."""
    survivors = 0
    for change in CHANGES:
        assert (ROOT / change.file).read_text("utf-8").count(change.old) == 1, change.what
        if words and not any(word in change.what for word in words):
            continue
        red = first_red(change)
        survivors += not red
        print(f"{'red     ' if red else 'SURVIVED'}  {change.what}: {red}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
