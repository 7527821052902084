"""Rules of approvals, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.approvals.broken_on_purpose          # all
python -m tests.approvals.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot", "tests/approvals")
GATE, DECIDING, ASKING, LINKS = (f"test_{name}.py" for name in ("gate", "deciding", "asking", "links"))
CHANGES = [
    Change(
        "the digest of the request is not compared",
        "core/approval.py",
        "            if grant.digest not in wanted:\n",
        "            if False:\n",
        f"{GATE} -k executed_9999",
    ),
    Change(
        "an approval is used as often as asked",
        "core/approval.py",
        "            elif self._used.setdefault(grant.id, slot) == slot:\n",
        "            elif True:\n",
        f"{GATE} -k approval_is_used_once",
    ),
    Change(
        "the use is not recorded with the intent",
        "core/perform.py",
        "            release=release,\n",
        "            release=None,\n",
        f"{GATE} -k gets_exactly_it",
    ),
    Change(
        "an approval that expired still releases",
        "core/approval.py",
        "            elif now >= grant.until:\n",
        "            elif False:\n",
        f"{GATE} -k expired_before_its_use",
    ),
    Change(
        "the effect's name is not in the digest",
        "core/approval.py",
        'struct.pack(">I", len(effect.encode())) + effect.encode() + artifact',
        'struct.pack(">I", 0) + artifact',
        f"{GATE} -k looks_like_a_request",
    ),
    Change(
        "`releases=` is ignored",
        "core/approval.py",
        "            elif grant.releases and grant.releases not in names:\n",
        "            elif False:\n",
        f"{GATE} -k bound_to_one_effect",
    ),
    Change(
        "a use that the journal holds, and replay has yet to reach, is not seen",
        "core/perform.py",
        "    _note_uses(state, state.replay.unread())\n",
        "",
        f"{GATE} -k whoever_is_faster",
    ),
    Change(
        "a disagreement keeps the approval",
        "core/perform.py",
        "            state.grants.give_back(release_slot(outcome.slot))\n",
        "            pass\n",
        f"{GATE} -k gives_the_approval_back",
    ),
    Change(
        "outside a run such an effect is not refused at once",
        "effects/effect.py",
        "        if self.needs_approval and not session.state.run_id:\n",
        "        if False:\n",
        f"{GATE} -k outside_a_run",
    ),
    Change(
        "the second decision counts (three checks have to go)",
        "core/asking.py",
        (
            (
                "        if before:\n            mine = before[0].id == self.mail.id\n"
                "            return Answer(Verdict.DONE if mine else Verdict.EXISTS, run=run)\n"
            ),
            "        if wait is None and not self.expires:\n            return Answer(Verdict.ABSENT, run=run)\n",
            " first_only=True,",
        ),
        "",
        f"{DECIDING} -k second_decision",
    ),
    Change(
        "the decider's digest is not compared",
        "core/asking.py",
        "        if wait is not None and wait.digest != self.digest:\n",
        "        if False:\n",
        f"{DECIDING} -k another_digest",
    ),
    Change(
        "a late approval is accepted",
        "core/asking.py",
        "        if wait is not None and (self.at >= wait.until) is not self.expires:\n",
        "        if False:\n",
        f"{DECIDING} -k between_time_and_a_person",
    ),
    Change(
        "a run that has ended takes decisions",
        "core/asking.py",
        "        if run.status in FINAL or (run.cancel_at and not self.expires):\n"
        "            return Answer(Verdict.ENDED, run=run)\n",
        "",
        f"{ASKING} -k cancelled_run",
    ),
    Change(
        "what is asked for is not to be seen at once",
        "core/asking.py",
        "            view.put_run(replace(run, waits=(*run.waits, self.wait)))\n",
        "            view.put_run(run)\n",
        f"{ASKING} -k while_other_branches_move",
    ),
    Change(
        "a claim drops what is asked for",
        "core/run.py",
        "            waits=asked,\n        )\n    deaths",
        "            waits=(),\n        )\n    deaths",
        f"{ASKING} -k claimed_again",
    ),
    Change(
        "a cancelled branch still asks",
        "runtime/approvals.py",
        "            _withdraw(session, asked)\n",
        "            pass\n",
        f"{ASKING} -k gave_up_waiting",
    ),
    Change(
        "another artifact, or another person, on replay is accepted",
        "core/asking.py",
        "short_digest(_encode([self.by, bool(self.names)]) + self.content)",
        'short_digest(b"")',
        f"{ASKING} -k on_replay_diverges",
    ),
    Change(
        "a denial is taken for an approval",
        "runtime/approvals.py",
        '    if decision.decision != "approved":\n',
        '    if decision.decision == "expired":\n',
        f"{ASKING} -k live_and_replayed",
    ),
    Change(
        "the decision is not recorded",
        "runtime/approvals.py",
        "    recorded = yield from flows.mark(session.state, branch, message_name(asked.id), value)\n",
        "    recorded = value\n    yield from ()\n",
        f"{ASKING} -k asked_once",
    ),
    Change(
        "GET decides",
        "web/approval_app.py",
        'if method == "POST" else {}',
        'if method == "POST" else parse_qs(scope["query_string"].decode())',
        f"{LINKS} -k scanner",
    ),
    Change(
        "the signature is not checked",
        "runtime/approval_links.py",
        "    if not hmac.compare_digest(_mac(content, key), given):\n",
        "    if False:\n",
        f"{LINKS} -k changed_anywhere",
    ),
    Change(
        "an expired link is good",
        "runtime/approval_links.py",
        "    if engine.time() >= link.until:\n",
        "    if False:\n",
        f"{LINKS} -k expired_link",
    ),
    Change(
        "a link for another digest is good",
        "runtime/approval_links.py",
        "    if view.digest != link.digest:\n",
        "    if False:\n",
        f"{LINKS} -k does_not_fit",
    ),
    Change(
        "who decides need not say what was shown",
        "runtime/decisions.py",
        "    if (approved or digest is not None) and not (isinstance(digest, str) and digest):\n",
        "    if False:\n",
        f"{DECIDING} -k makes_no_sense",
    ),
    Change(
        "a number is a secret",
        "runtime/approval_links.py",
        "    if not isinstance(given, str | bytes):",
        "    if given is None:",
        f"{LINKS} -k is_checked",
    ),
    Change(
        "the page is not escaped",
        "web/approval_page.py",
        "    return html.escape(plain(text))\n",
        "    return plain(text)\n",
        f"{LINKS} -k page_shows",
    ),
    Change(
        "the page shows text that hides or reverses",
        "web/approval_page.py",
        "    return html.escape(plain(text))\n",
        "    return html.escape(text)\n",
        f"{LINKS} -k page_shows",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
