"""Rules of crashtest, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.crashtest.broken_on_purpose          # all
python -m tests.crashtest.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot/crashtest", "tests/crashtest")
VERDICTS, ROWS, COMMAND, WIRE, RECORDING, LAST = (
    f"test_crashtest_{n}.py" for n in ("verdicts", "rows", "command", "wire", "recording", "last_reply")
)
CHANGES = [
    Change(
        "no kill is done",
        "gateway.py",
        "if life in self.killed or self._disarmed:",
        "if True:",
        f"{VERDICTS} -k sound",
    ),
    Change(
        "a row without its exit signal counts",
        "judge.py",
        "    if row.kills and not _unreached(seen) and not any(life.proved",
        "    if False and not any(life.proved",
        f"{VERDICTS} -k harness",
    ),
    Change(
        "an agent is not held at its exit",
        "tracing.py",
        "return number == EXIT_GROUP.get(platform.machine(), -1)",
        "return False",
        f"{LAST} -k with_the_reply",
    ),
    Change(
        "an agent that has read goes on",
        "reading.py",
        "not is_entry and self._is_read_for_good()",
        "False",
        f"{LAST} -k with_the_reply",
    ),
    Change(
        "any row without its kill was not reached",
        "judge.py",
        "    if first.number in seen.missed and first.exit_code == 0 and not first.killed:\n",
        "    if True:\n",
        f"{VERDICTS} -k harness",
    ),
    Change(
        "a kill that came too late is a fault",
        "gateway.py",
        "                self.missed.add(life)\n",
        "",
        f"{LAST} -k had_ended",
    ),
    Change(
        "no process is everybody in our own group",
        "process.py",
        "    if group <= 1:\n        return False\n",
        "",
        f"{WIRE} -k own_group",
    ),
    Change(
        "any end counts as the signal",
        "observed.py",
        "return self.killed and self.exit_code == -signal.SIGKILL",
        "return True",
        f"{VERDICTS} -k harness",
    ),
    Change(
        "more than in the clean run is fine",
        "judge.py",
        "if c > expected.performed[n]}",
        "if c < 0}",
        f"{VERDICTS} -k twice",
    ),
    Change(
        "less than in the clean run is fine",
        "judge.py",
        "if done[n] < c and not asks}",
        "if c < 0}",
        f"{VERDICTS} -k loses",
    ),
    Change(
        "other content is fine",
        "judge.py",
        "and have and have != bodies:",
        "and have is bodies:",
        f"{VERDICTS} -k amount",
    ),
    Change(
        "success that is a lie is not told",
        "judge.py",
        "says_success=bad and _ended_well(seen),",
        "says_success=False,",
        f"{VERDICTS} -k loses",
    ),
    Change(
        "a life that hangs is none",
        "judge.py",
        "if any(life.hung for life in seen.lives):",
        "if False:",
        f"{VERDICTS} -k hangs",
    ),
    Change(
        "the status is not read", "judge.py", "    if seen.still_running:", "    if False:", f"{VERDICTS} -k for_ever"
    ),
    Change(
        "the answer is not judged",
        "judge.py",
        'answer = "" if seen.answer_right is not False or asks else',
        'answer = "" if True else',
        f"{VERDICTS} -k answer",
    ),
    Change(
        "only the group is killed",
        "process.py",
        "    _kill_each(strays)\n    return len(strays | sweep(marker, pid, group=pid))",
        "    return len(strays)",
        f"{WIRE} -k session",
    ),
    Change(
        "what has no variable is not killed",
        "process.py",
        "    below = descendants(pid)\n",
        "    below: set[int] = set()\n",
        f"{WIRE} -k session",
    ),
    Change(
        "before acts all the same",
        "gateway.py",
        "        if deed is Deed.KILL_BEFORE:\n            self.kill(arrival.life)\n",
        "        if deed is Deed.KILL_BEFORE:\n            self._answer(arrival, target)\n            "
        "self.kill(arrival.life)\n",
        f"{VERDICTS} -k window_where",
    ),
    Change(
        "each life is killed at the boundary",
        "plan.py",
        "or arrival.life != 1 or",
        "or",
        f"{ROWS} -k first_life",
    ),
    Change(
        "one kill is enough for twice",
        "plan.py",
        'if row.kind == "twice" and arrival.life == 2',
        'if row.kind == "twice" and arrival.life == 0',
        f"{ROWS} -k second_life",
    ),
    Change(
        "a deploy restarts the old code",
        "supervise.py",
        'is_new = self.row.kind == "deploy" and number > 1',
        "is_new = False",
        f"{ROWS} -k deploy",
    ),
    Change(
        "a lost reply arrives",
        "gateway.py",
        "            case Deed.LOSE_REPLY:\n                return _cut(connection)\n",
        "",
        f"{ROWS} -k lose_reply",
    ),
    Change(
        "a key is not honoured",
        "services/routed.py",
        "held = self._by_key.get((text, key)) if key else None",
        "held = None",
        f"{VERDICTS} -k sound",
    ),
    Change(
        "a recording forgets its contract",
        "services/recording.py",
        "        if self._contract is not None:",
        "        if False:",
        f"{RECORDING} -k twin",
    ),
    Change(
        "faults exit with 0", "main.py", "        return HARNESS_FAULT", "        return FINE", f"{COMMAND} -k without"
    ),
    Change(
        "what an agent says is not escaped",
        "page.py",
        "f'<p class=\"agent\">{escape(result.title)}</p>',",
        "f'<p class=\"agent\">{result.title}</p>',",
        f"{COMMAND} -k escape",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
