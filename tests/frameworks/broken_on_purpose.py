"""Rules of the scripted model, the durable computer and the harness, each broken on purpose by tests/breaking.py.

python -m tests.frameworks.broken_on_purpose          # all
python -m tests.frameworks.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("", "")
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
    Change(
        "a page's program that charges twice is good",
        "frameworks/pages.py",
        "        return self[:3] == ([-signal.SIGKILL, 0], 1, calls) and",
        "        return self[0] == [-signal.SIGKILL, 0] and",
        f"{HARNESS}/test_the_harness.py -k a_page_s_program",
    ),
    Change(
        "Claude's program is asked for at Anthropic though a gateway is configured",
        "src/surefoot/integrations/claude_models.py",
        '(upstream or variable("ANTHROPIC_BASE_URL") or ANTHROPIC)',
        '(upstream or "http://127.0.0.1:9")',
        "tests/integrations/test_claude_models.py -k gateway",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
