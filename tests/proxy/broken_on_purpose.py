"""Rules of the proxy, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.proxy.broken_on_purpose          # all
python -m tests.proxy.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot/proxy", "tests/proxy")
BOOK, RULES, KILLS, TOKENS, EXEC, GEMINI = (
    f"test_{name}.py" for name in ("book", "proxy_rules", "proxy_kills", "token_endpoints", "proxy_exec", "gemini")
)
CHANGES = [
    Change(
        "attempts share one count of their calls",
        "book.py",
        "return self.attempts.setdefault(name, Attempt(name))",
        'return self.attempts.setdefault("", Attempt(name))',
        f"{BOOK} -k counts_its_calls",
    ),
    Change(
        "a call is made while recorded ones are unread",
        "book.py",
        "        if found is None and (unread := self._unread(attempt, scope)):\n",
        "        if found is None and False and (unread := self._unread(attempt, scope)):\n",
        f"{BOOK} -k are_unread",
    ),
    Change(
        "two who ask at once make two calls",
        "book.py",
        "self._results.get(slot) or self.flights.get(slot)",
        "self._results.get(slot)",
        f"{RULES}::test_agents_that_ask_for_the_same_thing_at_once_share_one_call",
    ),
    Change(
        "a failure that the agent acted on is not told again",
        "book.py",
        "if told < len(tries) and self._is_acted_on(tries[told]):",
        "if False and told < len(tries):",
        f"{RULES}::test_a_failure_that_the_agent_acted_on_is_told_again_and_not_waited_for",
    ),
    Change(
        "an attempt that diverged may go on",
        "server.py",
        "                        attempt.diverged = _diverged(held.id, slot, call, unread)\n",
        "                        raise Refusal(409, _diverged(held.id, slot, call, unread), 'diverged')\n",
        f"{RULES}::test_an_attempt_that_leaves_its_recorded_path_is_stopped_before_anything_is_sent",
    ),
    Change(
        "what says that an answer is complete is given out before it is recorded",
        "forward.py",
        "                await self._record(self._recorder.answer(), self._recorder)\n",
        "                asyncio.ensure_future(self._record(self._recorder.answer(), self._recorder))\n",
        f"{KILLS}::test_nobody_learns_that_an_answer_is_complete_before_it_is_on_disk",
    ),
    Change(
        "a whole answer is given out before it is recorded",
        "forward.py",
        "            await self._record(body, pieces)\n",
        "            asyncio.ensure_future(self._record(body, pieces))\n",
        f"{KILLS}::test_nobody_learns_that_an_answer_is_complete_before_it_is_on_disk",
    ),
    Change(
        "an answer that broke off counts as a result",
        "forward.py",
        '            if not self._is_recorded:\n                await self._failed(recorder.answer(), "")',
        "            if not self._is_recorded:\n                await self._record(recorder.answer(), recorder)",
        f"{KILLS}::test_a_stream_that_breaks_off_is_no_result",
    ),
    Change(
        "a run that has ended makes new calls",
        "server.py",
        "                    if held.session is None or held.over.done():\n",
        "                    if False:\n",
        f"{RULES}::test_a_run_that_has_ended_answers_from_its_record_and_makes_no_new_call",
    ),
    Change(
        "a credential that a service quotes is recorded",
        "forward.py",
        "        hidden = without_secrets(body, self._call.url, dict(self._call.headers))\n",
        "        hidden = body\n",
        f"{RULES}::test_a_credential_that_a_service_quotes_is_told_and_not_kept",
    ),
    Change(
        "a key that stands in the address is recorded when a service quotes it",
        "../http/secrets.py",
        "        if name in KEYS_IN_QUERY:\n",
        "        if False:\n",
        f"{RULES}::test_a_credential_that_a_service_quotes_is_told_and_not_kept",
    ),
    Change(
        "Gemini's function calls are left without ids",
        "forward.py",
        'if asked.api == "gemini.generate" else None',
        "if False else None",
        f"{GEMINI}::test_function_calls_have_ids_that_another_attempt_sees_again",
    ),
    Change(
        "the key is not asked for",
        "server.py",
        "if key and not hmac.",
        "if False and not hmac.",
        f"{RULES}::test_with_a_key_nothing_is_answered_without_it",
    ),
    Change(
        "any host's name is answered to",
        "server.py",
        "if not key and not is_loopback(host):",
        "if False:",
        f"{RULES}::test_a_page_in_a_browser_is_refused",
    ),
    Change(
        "a page in a browser is answered",
        "server.py",
        'if "origin" in request.headers or',
        "if",
        f"{RULES}::test_a_page_in_a_browser_is_refused",
    ),
    Change(
        "it listens to everybody without a key",
        "options.py",
        "if not is_loopback(self.host) and not self.key:",
        "if False:",
        f"{RULES}::test_it_listens_to_others_only_with_a_key",
    ),
    Change(
        "a token is exchanged again for who comes later",
        "tokens.py",
        "        return (number + 1, state, None) if state is State.VOID else (number, state, effect)\n",
        "        return number + 1, State.VOID, None\n",
        f"{TOKENS}::test_two_proxies_on_one_store_make_one_exchange",
    ),
    Change(
        "a token's answer is kept in clear",
        "token_exchange.py",
        "msgspec.to_builtins(seal(msgspec.json.encode(kept), place_of(engine, digest, number)))",
        "msgspec.to_builtins(kept) | {'seal': str(kept.content)}",
        f"{TOKENS}::test_no_token_is_in_the_store_in_clear",
    ),
    Change(
        "an exchange in doubt is given up as refused",
        "token_exchange.py",
        "        meant = told(error, self._service.contract)\n",
        "        meant = Refused('refused')\n",
        f"{TOKENS}::test_a_reply_that_never_reaches_the_proxy_is_the_case_that_stays_open_at_a_strict_provider",
    ),
    Change(
        "a restarted agent is told the same attempt",
        "supervise.py",
        "            attempt = random_uuid().hex[:12]\n",
        '            attempt = "1"\n',
        f"{EXEC}::test_an_agent_in_any_language_goes_on_where_it_was_killed[shell]",
    ),
    Change(
        "what a dead attempt leaves behind lives on",
        "supervise.py",
        "                _kill_group(process.pid)\n",
        "                pass\n",
        f"{EXEC}::test_what_a_dead_attempt_leaves_behind_is_killed_before_the_next",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
