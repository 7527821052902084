"""Breaks each rule on purpose, one change at a time in a copy of the code, and says which test goes red.

    python -m tests.broken_on_purpose            # all, some minutes
    python -m tests.broken_on_purpose R5 R7      # these rules

Exits 1 if a change survives. The table in docs/guarantees.md is what this prints.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 240
SUITES: list[list[str]] = [
    ["tests/contract", "tests/crash/test_traps.py"],
    ["tests/runtime/test_values.py"],
    ["tests/crash/test_store_faults.py"],
    [
        "tests/crash/test_crash_at.py",
        "-k",
        "pipelined or (any_command and memory and (timeout or late or not_performed))",
    ],
    ["tests/crash/test_two_processes.py"],
    ["tests/core/test_answers.py", "tests/core/test_policy.py", "tests/core/test_perform.py"],
]


class Change(NamedTuple):
    """One rule, broken: in `file`, `old` (which stands there once) becomes `new`."""

    rule: str
    file: str
    what: str
    old: str
    new: str


CHANGES = [
    Change(
        "R1",
        "core/flows.py",
        "a recorded step's entry is ignored on replay",
        "        return entry.kind == EntryKind.STEP, stored, None\n",
        "        pass\n",
    ),
    Change(
        "R1",
        "runtime/session.py",
        "a step returns before its record is durable",
        "    if session.pipelined or not command.wait:\n        session.pipeline(write)\n    else:\n        check(session.engine.committer.commit(write))",
        "    if True:\n        session.pipeline(write)",
    ),
    Change(
        "R2",
        "core/perform.py",
        "the request leaves before the intent is committed",
        "        answer = yield from ask(Commit(write))\n        check(answer)\n        held = answer.effect\n        if held is None:",
        "        yield SendEffect(call, proposal, vantage.at + 9, vantage.lease_now + 9)\n        answer = yield from ask(Commit(write))\n        check(answer)\n        held = answer.effect\n        if held is None:",
    ),
    Change(
        "R2",
        "runtime/committer.py",
        "the queue is committed newest first",
        "            batch.append(queue.popleft())",
        "            batch.append(queue.pop())",
    ),
    Change(
        "R2",
        "core/flows.py",
        "a step's record is dropped (never written)",
        "    yield Record(Draft(kind, slot, arguments_digest, preview, value, 0.0, attempt), blobs)",
        "    pass",
    ),
    Change(
        "R3",
        "core/perform.py",
        "the arguments decide the identity",
        "        key = derive_key(state.namespace, call.identity or",
        "        key = derive_key(state.namespace, args_digest.hex() + call.identity or",
    ),
    Change(
        "R4",
        "core/writes.py",
        "another request under an identity takes it over",
        "        if held.request_digest != asked.request_digest or",
        "        if",
    ),
    Change(
        "R4",
        "core/journal.py",
        "recorded arguments are not compared",
        "        if _FAMILY[entry.kind] != family or entry.args_digest != args_digest:",
        "        if _FAMILY[entry.kind] != family:",
    ),
    Change("R4", "core/journal.py", "unread entries do not stop a send", "        if stray:", "        if False:"),
    Change(
        "R5",
        "core/policy.py",
        "an opaque effect in doubt is sent again",
        "            if contract.at_least_once:",
        "            if True:",
    ),
    Change(
        "R5", "core/policy.py", "the key's window is not looked at", "    if until and now >= until:", "    if False:"
    ),
    Change(
        "R5",
        "core/policy.py",
        "an empty lookup counts at once",
        'answers if e.found == "absent" and e.at >= settled]',
        'answers if e.found == "absent"]',
    ),
    Change("R5", "core/contract.py", "one clear no is enough", "clear_nos: int = 2", "clear_nos: int = 1"),
    Change(
        "R6",
        "core/policy.py",
        "an unknown answer counts as refused",
        "        case _:\n            return Do.LOSE\n",
        "        case _:\n            return Do.REFUSE\n",
    ),
    Change(
        "R6",
        "core/writes.py",
        "an effect whose sender died counts as confirmed",
        "            taken = apply(taken, Event(do=Do.LOSE, at=at, reason=why))",
        "            taken = apply(taken, Event(do=Do.CONFIRM, at=at, receipt=b'null', reason=why))",
    ),
    Change(
        "R6",
        "core/policy.py",
        "an unsent answer counts as landed",
        '        case "landed":',
        '        case "landed" | "unsent":',
    ),
    Change(
        "R7",
        "core/writes.py",
        "the run's fence token is not compared",
        "    if run.fence != fence or run.status",
        "    if run.status",
    ),
    Change(
        "R7",
        "core/lease.py",
        "anybody may take anything",
        "        if holder_id in (0, self.owner) or",
        "        if True or",
    ),
    Change(
        "R7",
        "core/writes.py",
        "the effect's fence token is not compared",
        "        if held.fence != self.effect_fence or held.term < view.term.number:",
        "        if held.term < view.term.number:",
    ),
    Change(
        "R7",
        "runtime/session.py",
        "a paused process sends whenever it wakes",
        "        if clock.now() <= command.begin_until and not_paused and engine.leased():",
        "        if True:",
    ),
    Change(
        "R7",
        "stores/sqlite/store.py",
        "what is remembered outlives another process's commit",
        "            if version != self._version:",
        "            if not self._version:",
    ),
    Change(
        "R8",
        "stores/sqlite/presence.py",
        "a dead process is never noticed",
        "            path.unlink(missing_ok=True)\n            return True",
        "            return False",
    ),
    Change(
        "R8",
        "runtime/ending.py",
        "a run that waits for a person is left as running",
        "            return Ending(RunDo.SUSPEND, error",
        "            return Ending(None, error",
    ),
    Change(
        "R9",
        "runtime/step.py",
        "the workflow gets the value that the body returned, not the one that was read back",
        "return Result(True, stored, after)",
        "return Result(True, stored, value)",
    ),
    Change(
        "R10",
        "runtime/committer.py",
        "an unknown commit is not read again",
        "                if unknown == UNKNOWN_TRIES:",
        "                if True:",
    ),
    Change(
        "R10",
        "core/writes.py",
        "a recorded write is not recognised (effects)",
        "        if held.stamp == self.stamp:\n            return Answer(Verdict.DONE, effect=held)\n        if self.run_id and owned",
        "        if self.run_id and owned",
    ),
    Change(
        "R10",
        "core/writes.py",
        "an entry written twice is not recognised",
        "        if view.again and view.has_entry(self.run_id, self.draft.slot, self.draft.kind):",
        "        if False:",
    ),
    Change(
        "R10",
        "runtime/session.py",
        "a store's error reaches the workflow as an exception of the effect",
        "HALTING = (StoreError, Diverged,",
        "HALTING = (Diverged,",
    ),
    Change(
        "R11",
        "runtime/session.py",
        "a failed attempt sends a second request at once",
        "    return session.may_begin(command) or command.call.send(session, command.effect)",
        '    if (late := session.may_begin(command)) is not None:\n        return late\n    answer = command.call.send(session, command.effect)\n    return answer if answer.kind == "landed" else command.call.send(session, command.effect)',
    ),
    Change(
        "R4",
        "core/perform.py",
        "a resend goes to another account than the intent's",
        "or effect.status is Status.PARKED or effect.scope == call.scope:",
        "or effect.status is Status.PARKED or True:",
    ),
    Change(
        "R5",
        "core/policy.py",
        "a short window is relied on by whoever takes over",
        "    if contract.is_short and effect.taken_over:\n        return effect.first_sent_at\n",
        "",
    ),
    Change("R5", "core/policy.py", "a used-up key is sent again", "    if told in _NOT_REPEATED:\n", "    if False:\n"),
    Change(
        "R5",
        "core/policy.py",
        "an empty answer counts where it proves nothing",
        "        if not contract.absence:\n",
        "        if False:\n",
    ),
    Change(
        "R5",
        "core/policy.py",
        "a repeat that is refused for its credentials ends the effect",
        "answer.code not in UNKEYED_CODES",
        "True",
    ),
    Change(
        "R6",
        "core/policy.py",
        "what the receiver says had landed is taken for absent",
        '        if last_answer(effect) == "landed":\n',
        "        if False:\n",
    ),
    Change(
        "R12",
        "testing/receiver.py",
        "the receiver forgets keys: the ledger must show it",
        'known = self._by_key.get(key) if promise == "keyed" else None',
        "known = None",
    ),
    Change(
        "R12",
        "testing/receiver.py",
        "the receiver performs and writes nothing down",
        '        self._note("performed" if held is None else "repeated", name, key, body, receipt["number"])',
        "        pass",
    ),
]


def first_red(source: Path) -> str:
    """The first test that goes red with this copy of the code, or ""."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    for suite in SUITES:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            "--timeout=60",
            *suite,
        ]
        try:
            ran = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{suite[0]} (hangs)"
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
        if found:
            return found.group(1)
        if ran.returncode:  # no test said so, so nothing was seen
            raise SystemExit(f"pytest {suite[0]} ended with {ran.returncode}: {ran.stdout[-800:]}{ran.stderr[-800:]}")
    return ""


def try_out(change: Change) -> bool:
    """Break it, look, and print a row of the table; True if a test saw it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        path = source / "surefoot" / change.file
        text = path.read_text()
        if text.count(change.old) != 1:
            raise SystemExit(f"{change.file}: expected once, found {text.count(change.old)} times: {change.old!r}")
        path.write_text(text.replace(change.old, change.new))
        red = first_red(source)
    print(f"| {change.rule} | {change.what} | `{red or 'SURVIVED'}` |", flush=True)
    return bool(red)


def main(rules: list[str]) -> int:
    """Two at a time."""
    chosen = [change for change in CHANGES if not rules or change.rule in rules]
    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(try_out, chosen))
    print(f"{sum(seen)} of {len(seen)} changes were seen")
    return 0 if all(seen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
