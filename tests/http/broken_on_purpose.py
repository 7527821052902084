"""Breaks each safety rule of model calls on purpose, one at a time in a copy of the code, and says which test goes red.

    python -m tests.http.broken_on_purpose             # all, some minutes
    python -m tests.http.broken_on_purpose fingerprint  # those whose description holds the word

Exits 1 if a change survives.
"""

# ruff: noqa: E501 - it holds lines of our code as they stand

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
    """In `file`, `old` (which stands there once) becomes `new`; `tests` are those that should see it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


CALLS, JOURNAL, REQUESTS, SDKS = (f"test_{name}.py" for name in ("calls", "journal", "requests", "sdks"))
CHANGES = [
    Change(
        "a recorded call is made again",
        "runtime/calls.py",
        "        entry = replay.take_beside(slot) if failed is None else None\n",
        "        entry = None\n",
        f"{CALLS} -k paid_for_once",
    ),
    Change(
        "a call off the recorded path is made",
        "runtime/calls.py",
        '        replay.may_call(place.branch, f"call {slot}({preview})")\n',
        "",
        f"{CALLS} -k off_the_recorded",
    ),
    Change(
        "an effect is sent while calls are unread",
        "core/journal.py",
        "branches = [branch] if undoes or branch.known else [branch, self.call_scope(branch)]",
        "branches = [branch]",
        f"{CALLS} -k effect",
    ),
    Change(
        "a call diverges without waiting for those beside it",
        "runtime/calls.py",
        "            yield from catch_up(session, place.branch)\n",
        "",
        f"{CALLS} -k beside",
    ),
    Change(
        "a stopped run goes on calling",
        "runtime/calls.py",
        "    refuse_if_stopped(place)\n    session, calls = place.session",
        "    session, calls = place.session",
        f"{CALLS} -k swallowed",
    ),
    Change(
        "a doubt that a framework swallowed ends as success",
        "runtime/ending.py",
        "    if session.suspended and (stopped is None or isinstance(stopped, Exception) or _is_group_of_stops(stopped)):\n",
        "    if False:\n",
        f"{CALLS} -k person",
    ),
    Change(
        "errors behind the frontier are asked anew",
        "core/journal.py",
        "        if tries[read].seq > self._last:\n",
        "        if True:\n",
        f"{JOURNAL} -k fallback",
    ),
    Change(
        "errors at the frontier are replayed",
        "core/journal.py",
        "        if tries[read].seq > self._last:\n",
        "        if False:\n",
        f"{JOURNAL} -k anew",
    ),
    Change(
        "an occurrence is not given back after an error",
        "runtime/calls.py",
        "            calls.taken.get((self.place.path, self._name), set()).discard(self._count)\n",
        "            pass\n",
        f"{JOURNAL} -k retries",
    ),
    Change(
        "the reader sees the end before it is on disk",
        "http/sse.py",
        "        self._holding = self._holding or self._closing or ends\n",
        "        self._holding = ends\n",
        f"{JOURNAL} -k learns",
    ),
    Change(
        "a tool call is handed over before its answer is on disk",
        "http/sse.py",
        "        self._holding = self._holding or self._handing.hands_over(event)\n",
        "",
        "test_eager_readers.py -k before",
    ),
    Change(
        "what was held back of a cut answer is given out after all",
        "http/sse.py",
        "                self.failed = self.failed or \"the stream ended without its terminal event\"\n        return out\n",
        "                self.failed = self.failed or \"the stream ended without its terminal event\"\n                out.extend(self._held)\n        return out\n",
        "test_eager_readers.py -k fails_after",
    ),
    Change(
        "the terminal event passes before the commit",
        "http/sse.py",
        "        out.extend((COMMIT, *self._held))\n",
        "        out.extend((*self._held, COMMIT))\n",
        f"{JOURNAL} -k learns",
    ),
    Change(
        "a cut stream is a result",
        "http/sse.py",
        '                self.failed = self.failed or "the stream ended without its terminal event"\n',
        "                out.append(COMMIT)\n",
        f"{JOURNAL} -k badly",
    ),
    Change(
        "an error in a stream is a result",
        "http/sse.py",
        "            self.failed = f\"an error in the stream: {data[:200].decode('utf-8', 'replace')}\"\n            return False\n",
        "            return True\n",
        f"{JOURNAL} -k badly",
    ),
    Change(
        "a call returns before its record is durable",
        "runtime/session.py",
        "    if session.pipelined or not command.wait:\n        session.pipeline(write)\n    else:\n        check(session.engine.committer.commit(write))",
        "    if True:\n        session.pipeline(write)",
        f"{JOURNAL} -k learns",
    ),
    Change(
        "Gemini's tool calls have no ids",
        "http/exchange.py",
        'if asked.api == "gemini.generate" else None',
        "if False else None",
        f"{REQUESTS} -k gemini_has",
    ),
    Change(
        "the fingerprint holds who asks",
        "http/request.py",
        'VOLATILE = ("metadata", ',
        "VOLATILE = (",
        f"{REQUESTS} -k names_the_caller",
    ),
    Change(
        "the fingerprint leaves out the body",
        "http/request.py",
        "    hashed.update(content if isinstance(content, bytes) else _encode_sorted(content))\n",
        "",
        f"{JOURNAL} -k something_else",
    ),
    Change(
        "the fingerprint holds a multipart boundary",
        "http/request.py",
        '    if content_type.startswith("multipart/"):\n',
        "    if False:\n",
        f"{REQUESTS} -k multipart",
    ),
    Change(
        "content-encoding is kept",
        "http/recorded.py",
        '        "content-encoding",\n',
        "",
        f"{SDKS} -k gzip",
    ),
    Change(
        "whole requests are stored",
        "http/conversation.py",
        "        link = links.get((last, content))\n",
        '        content, link = content + b" " * len(links), None\n',
        f"{REQUESTS} -k square",
    ),
    Change(
        "tokens of calls are not counted",
        "runtime/calls.py",
        "        budgets.count(session, spent_of(called))\n",
        "",
        f"{CALLS} -k restarts",
    ),
    Change(
        "a call that nobody records passes in silence",
        "http/blind.py",
        "    session.note(text)\n",
        "    return\n",
        f"{REQUESTS} -k beside_the_journal",
    ),
]


def broken_copy(change: Change, folder: Path) -> Path:
    """A copy of the package in which the change was made."""
    shutil.copytree(ROOT / "src" / "surefoot", folder / "surefoot", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "surefoot" / change.file
    text = file.read_text("utf-8")
    assert text.count(change.old) == 1, (
        f"{change.what}: {change.file} has {change.old!r} {text.count(change.old)} times"
    )
    file.write_text(text.replace(change.old, change.new), "utf-8")
    return folder


def first_red(change: Change) -> str:
    """The first test that failed, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        place = broken_copy(change, Path(folder))
        words = change.tests.split(" ", 1)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", "60", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, f"tests/http/{words[0]}", *(words[1].split() if words[1:] else [])],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(place)},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        found = re.search(r"^(?:FAILED|ERROR) tests/http/(\S+)", done.stdout, re.MULTILINE)
        timed_out = re.search(r"(test_\w+\.py)\", line \d+, in (test_\w+)", done.stdout + done.stderr)
        return found[1] if found else (f"{timed_out[1]}::{timed_out[2]} (hangs)" if timed_out else "")


def main(words: list[str]) -> int:
    """Try each change that a word picks; all must still fit the code."""
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
