"""Breaks each rule of the proxy on purpose, one change at a time in a copy of the code, and says which test goes red.

    python -m tests.proxy.broken_on_purpose          # all, some minutes
    python -m tests.proxy.broken_on_purpose token    # those whose description holds the word

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
SECONDS_MAX = 300


class Change(NamedTuple):
    """In `file`, `old` (which stands there once) becomes `new`; `tests` are those that should see it."""

    what: str
    file: str
    old: str
    new: str
    tests: str


BOOK, RULES, KILLS, TOKENS, EXEC = (
    f"test_{name}.py" for name in ("book", "proxy_rules", "proxy_kills", "token_endpoints", "proxy_exec")
)
CHANGES = [
    Change(
        "attempts share one count of their calls",
        "book.py",
        "return self.attempts.setdefault(name, Attempt(name))",
        'return self.attempts.setdefault("", Attempt(name))',
        BOOK,
    ),
    Change(
        "a call is made while recorded ones are unread",
        "book.py",
        "        if found is None and (unread := self._unread(attempt, scope)):\n",
        "        if found is None and False and (unread := self._unread(attempt, scope)):\n",
        BOOK,
    ),
    Change(
        "two who ask at once make two calls",
        "book.py",
        "self._results.get(slot) or self.flights.get(slot)",
        "self._results.get(slot)",
        RULES,
    ),
    Change(
        "a failure that the agent acted on is not told again",
        "book.py",
        "if told < len(tries) and self._is_acted_on(tries[told]):",
        "if False and told < len(tries):",
        RULES,
    ),
    Change(
        "an attempt that diverged may go on",
        "server.py",
        "                        attempt.diverged = _diverged(held.id, slot, call, unread)\n",
        "                        raise Refusal(409, _diverged(held.id, slot, call, unread), 'diverged')\n",
        RULES,
    ),
    Change(
        "what says that an answer is complete is given out before it is recorded",
        "forward.py",
        "                await self._record(self._recorder.answer(), self._recorder)\n",
        "                asyncio.ensure_future(self._record(self._recorder.answer(), self._recorder))\n",
        KILLS,
    ),
    Change(
        "a whole answer is given out before it is recorded",
        "forward.py",
        "            await self._record(body, pieces)\n",
        "            asyncio.ensure_future(self._record(body, pieces))\n",
        KILLS,
    ),
    Change(
        "an answer that broke off counts as a result",
        "forward.py",
        '            if not self._is_recorded:\n                await self._failed(recorder.answer(), "")',
        "            if not self._is_recorded:\n                await self._record(recorder.answer(), recorder)",
        KILLS,
    ),
    Change(
        "a run that has ended makes new calls",
        "server.py",
        "                    if held.session is None or held.over.done():\n",
        "                    if False:\n",
        RULES,
    ),
    Change(
        "a credential that a service quotes is recorded",
        "forward.py",
        "        hidden = without_secrets(body, dict(self._call.headers))\n",
        "        hidden = body\n",
        RULES,
    ),
    Change("the key is not asked for", "server.py", "if key and not hmac.", "if False and not hmac.", RULES),
    Change("any host's name is answered to", "server.py", "if not key and not is_loopback(host):", "if False:", RULES),
    Change("a page in a browser is answered", "server.py", 'if "origin" in request.headers or', "if", RULES),
    Change(
        "it listens to everybody without a key",
        "options.py",
        "if not is_loopback(self.host) and not self.key:",
        "if False:",
        RULES,
    ),
    Change(
        "a token is exchanged again for who comes later",
        "tokens.py",
        "        return (number + 1, state, None) if state is State.VOID else (number, state, effect)\n",
        "        return number + 1, State.VOID, None\n",
        TOKENS,
    ),
    Change(
        "a token's answer is kept in clear",
        "token_exchange.py",
        "msgspec.to_builtins(seal(msgspec.json.encode(kept), place_of(engine, digest, number)))",
        "msgspec.to_builtins(kept) | {'seal': str(kept.content)}",
        TOKENS,
    ),
    Change(
        "an exchange in doubt is given up as refused",
        "token_exchange.py",
        "        meant = told(error, self._service.contract)\n",
        "        meant = Refused('refused')\n",
        TOKENS,
    ),
    Change(
        "the exchange dies with who asked for it",
        "tokens.py",
        "        return await asyncio.shield(task)\n",
        "        while not task.done():\n"
        "            if await request.is_disconnected():\n"
        "                task.cancel()\n"
        "            await asyncio.sleep(0)\n"
        "        return task.result()\n",
        TOKENS,
    ),
    Change(
        "a restarted agent is told the same attempt",
        "supervise.py",
        "            attempt = random_uuid().hex[:12]\n",
        '            attempt = "1"\n',
        EXEC,
    ),
    Change(
        "what a dead attempt leaves behind lives on",
        "supervise.py",
        "                _kill_group(process.pid)\n",
        "                pass\n",
        EXEC,
    ),
]


def first_red(change: Change) -> str:
    """The first test that goes red with this change, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "surefoot" / "proxy" / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise SystemExit(f"{change.file}: expected once, found {text.count(change.old)} times: {change.old!r}")
        path.write_text(text.replace(change.old, change.new))
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", "--timeout=60"]
        try:
            ran = subprocess.run(
                [*command, f"tests/proxy/{change.tests}"],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{change.tests} (hangs)"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return found.group(1) if found else f"{change.tests} (ends with {ran.returncode})" if ran.returncode else ""


def main(words: list[str]) -> int:
    """One after the other: several of the tests need the machine's attention."""
    seen: list[bool] = []
    for change in CHANGES:
        if all(word in change.what for word in words):
            red = first_red(change)
            seen.append(bool(red))
            print(f"| {change.what} | `{red or 'SURVIVED'}` |", flush=True)
    print(f"{sum(seen)} of {len(seen)} changes were seen")
    return 0 if all(seen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
