"""Safety rules of model calls, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.http.broken_on_purpose          # all
python -m tests.http.broken_on_purpose WORD     # those whose description holds the word
"""

# ruff: noqa: E501 - it holds lines of our code as they stand

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot", "tests/http")
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
        '                self.failed = self.failed or "the stream ended without its terminal event"\n        return out\n',
        '                self.failed = self.failed or "the stream ended without its terminal event"\n                out.extend(self._held)\n        return out\n',
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
        "the fingerprint holds what Claude's program says of its process",
        "http/request.py",
        "headers, question_of(content))",
        "headers, content)",
        f"{REQUESTS} -k claudes_program",
    ),
    Change(
        "the fingerprint of any program leaves out the day",
        "http/claude_program.py",
        "    if len(rest) == len(blocks):\n        return body\n",
        "",
        f"{REQUESTS} -k another_program",
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

if __name__ == "__main__":
    main(AREA, CHANGES)
