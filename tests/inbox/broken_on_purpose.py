"""Safety rules of the inbox, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.inbox.broken_on_purpose          # all
python -m tests.inbox.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot/inbox", "tests/inbox")
KILLED, SERVICE, CONCURRENT, ONCE, RULES = (
    f"test_{n}.py" for n in ("killed_services", "service", "concurrent_services", "once", "rules")
)
CHANGES = [
    Change(
        "no unique constraint: every claim is inserted",
        "queries.sql",
        ("\nON CONFLICT (scope, request_key) DO NOTHING", "    PRIMARY KEY (scope, request_key),\n"),
        "",
        f"{CONCURRENT} -k 64",
    ),
    Change(
        "once without a unique constraint",
        "queries.sql",
        ("\nON CONFLICT (scope, request_key) DO NOTHING", "    PRIMARY KEY (scope, request_key),\n"),
        "",
        f"{ONCE} -k eight",
    ),
    Change(
        "once stores the result in a transaction after the change's",
        "once.py",
        "            done = yield from self._wire.execute(",
        "            yield from self._wire.commit()\n            done = yield from self._wire.execute(",
        f"{ONCE} -k cannot_be_written",
    ),
    Change(
        "once commits the key before the change",
        "once.py",
        "                yield from self._refuse_autocommit()\n",
        "                yield from self._wire.commit()\n",
        f"{KILLED} -k transactional",
    ),
    Change(
        "once compares no request", "once.py", "if digest != self._digest:", "if False:", f"{ONCE} -k another_request"
    ),
    Change(
        "once commits an open transaction",
        "once.py",
        "if self._commits and self._wire.is_open():",
        "if False:",
        f"{ONCE} -k open_transaction",
    ),
    Change(
        "no fingerprint", "rules.py", "if found.digest != asked.digest:", "if False:", f"{SERVICE} -k another_payload"
    ),
    Change(
        "the client is not in the scope",
        "request.py",
        'client.encode("utf-8", "surrogatepass")',
        'b""',
        f"{SERVICE} -k of_one_client",
    ),
    Change(
        "a lost plain handler is run again",
        "rules.py",
        "return found.transactional and asked.transactional",
        "return True",
        f"{KILLED} -k plain_handler",
    ),
    Change(
        "a lost transactional handler is not run again",
        "rules.py",
        "return found.transactional and asked.transactional",
        "return False",
        f"{KILLED} -k a_transactional",
    ),
    Change(
        "the answer leaves before it is stored",
        "middleware.py",
        "        ending = self._middleware.answered(",
        "        await self._pass_on(status, headers, body)\n        ending = self._middleware.answered(",
        f"{KILLED} -k a_transactional",
    ),
    Change(
        "the answer is not stored",
        "rules.py",
        "    mine, move, result = ending.claim, ending.move, ending.result\n",
        "    return None\n    mine, move, result = ending.claim, ending.move, ending.result\n",
        f"{SERVICE} -k equal_byte",
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
        f"{RULES} -k stale",
    ),
    Change(
        "a plain handler that failed is run again",
        "middleware.py",
        "Move.RELEASE if claim.transactional or nothing_happened else Move.LOSE",
        "Move.RELEASE",
        f"{SERVICE} -k failed_is_in_doubt",
    ),
    Change(
        "a doubt expires",
        "rules.py",
        "settled = claim.standing in (Standing.ANSWERED, Standing.RELEASED)",
        "settled = True",
        f"{SERVICE} -k never_expires",
    ),
    Change(
        "a transactional handler need not use once",
        "middleware.py",
        "if not self._claim.transactional or self._call.used_once:",
        "if True:",
        f"{SERVICE} -k boasts",
    ),
    Change(
        "cookies are replayed",
        "answers.py",
        '*("content-type", ',
        '*("set-cookie", "content-type", ',
        f"{SERVICE} -k listed_headers",
    ),
    Change(
        "a client that leaves stops the stream of its answer",
        "exchange.py",
        "        await self._over.wait()\n",
        "",
        f"{SERVICE} -k leaves_a_stream",
    ),
    Change(
        "what could not be recorded is forgotten",
        "claims.py",
        "                self._unrecorded.append(ending)\n",
        "                pass\n",
        f"{CONCURRENT} -k back",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
