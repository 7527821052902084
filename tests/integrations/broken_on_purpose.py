"""Rules of gated tools, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.integrations.broken_on_purpose          # all
python -m tests.integrations.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

TOOL, DOUBT, INTERRUPTED = (f"test_{n}.py" for n in ("tool", "tool_in_doubt", "interrupted"))
AREA = Area("src/surefoot", "tests/integrations")
GATE, GATED, SEEN = (f"integrations/{name}.py" for name in ("gate", "gated", "appearance"))
CHANGES = [
    Change(
        "a run that is interrupted leaves a framework's task in the middle of a tool",
        "runtime/tasks.py",
        "(session.tasks | session.sending) - ours",
        "session.tasks - ours",
        f"{INTERRUPTED} -k raised",
    ),
    Change(
        "what is recorded after the end waits for ever",
        "runtime/committer.py",
        "        if self._closed:\n            self._refuse_queued()\n        elif",
        "        if",
        f"{INTERRUPTED} -k outlives",
    ),
    Change(
        "an id is relied on that no recorded answer holds",
        GATE,
        "and calls.knows(place, known)",
        "",
        f"{TOOL} -k not_relied_on",
    ),
    Change(
        "a known id is not used",
        GATE,
        "        if known is not None and is_known and not",
        "        if known is not None and is_known and False and not",
        f"{TOOL} -k known_by_the_id",
    ),
    Change(
        "a call moves to its id's slot when that becomes known",
        GATE,
        " and not self._is_recorded(place, what):",
        ":",
        f"{TOOL} -k stays_so",
    ),
    Change(
        "no memo: what is called again for one call of the model runs again",
        GATE,
        "        self.held.end(self.slot, Done(self.digest, value, None))\n        return value\n\n"
        "    async def run_async",
        "        self.held.end(self.slot, None)\n        return value\n\n    async def run_async",
        f"{TOOL} -k run_again",
    ),
    Change(
        "the memo looks at no arguments",
        GATE,
        "        if done.digest != self.digest:",
        "        if False:",
        f"{TOOL} -k with_other_arguments",
    ),
    Change(
        "two uses by one call of the model share a slot",
        GATE,
        "            number = call.occurrence(name) if call is not None and call.id == known else 0",
        "            number = 0",
        f"{TOOL} -k uses_twice",
    ),
    Change(
        "equal calls without ids share a slot",
        GATE,
        "            text = _nth(what, self.held.occurrence(scope, what))",
        "            text = _nth(what, 0)",
        f"{TOOL} -k equal_calls",
    ),
    Change(
        "the stop is told to one tool only",
        GATE,
        "            told = self.session.suspended[self.branch.path] = ToolInDoubt(error.reason)\n"
        "        if isinstance(told, Signal):\n            calls.stop(self.place, told)",
        "            told = ToolInDoubt(error.reason)\n            self.session.suspended.clear()",
        f"{DOUBT} -k swallows_the_stop",
    ),
    Change(
        "doubt is an ordinary exception",
        GATE,
        "class ToolInDoubt(Suspend):",
        "class ToolInDoubt(Suspend, Exception):",
        f"{DOUBT} -k no_except_exception",
    ),
    Change(
        "a stop cuts off what runs beside it",
        GATE,
        "        return bool(self.held.flying)",
        "        return False",
        f"{DOUBT} -k beside_one_in_doubt",
    ),
    Change(
        "what is shown can be unwrapped",
        SEEN,
        "        del shown.__wrapped__  # what unwraps it would find the attempt, and a way around the gate\n",
        "",
        f"{TOOL} -k neither_attempt",
    ),
    Change(
        "the attempt is shown",
        SEEN,
        '    hidden = {"attempt"} if tool.wants_attempt else set[str]()',
        "    hidden = set[str]()",
        f"{TOOL} -k neither_attempt",
    ),
    Change(
        "a gated call can be found by its name later",
        GATED,
        '    def register(self) -> None:\n        """Not."""\n',
        "",
        f"{DOUBT} -k found_by_nobody",
    ),
    Change(
        "an approval is asked for, and not needed",
        "integrations/tool.py",
        "        needs = self.approval is not None\n",
        "        needs, self.approval = False, None\n",
        f"{DOUBT} -k needs_approval",
    ),
    Change(
        "an async effect that a loop left open is called as if it were def",
        "effects/use.py",
        "        if effect.is_async:  # left open by an event loop that is gone, in a def workflow\n"
        "            return _in_new_loop(lambda: self.send_async(session, record))\n",
        "",
        f"{DOUBT} -k loop_that_is_gone",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
