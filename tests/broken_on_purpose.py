"""The rules of docs/guarantees.md, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.broken_on_purpose          # all
python -m tests.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

SUITES = (
    ("tests/contract", "tests/crash/test_traps.py"),
    ("tests/runtime/test_values.py",),
    ("tests/crash/test_store_faults.py",),
    (
        "tests/crash/test_crash_at.py",
        "-k",
        "pipelined or (any_command and memory and (timeout or late or not_performed))",
    ),
    ("tests/crash/test_two_processes.py",),
    ("tests/core/test_answers.py", "tests/core/test_policy.py", "tests/core/test_perform.py"),
)
AREA = Area("src/surefoot", "", suites=SUITES)
CHANGES = [
    Change(
        "a recorded step's entry is ignored on replay",
        "core/flows.py",
        "        return entry.kind == EntryKind.STEP, stored, None\n",
        "        pass\n",
        rule="R1",
    ),
    Change(
        "a step returns before its record is durable",
        "runtime/session.py",
        "    if session.pipelined or not command.wait:\n        session.pipeline(write)\n    else:\n        check(session.engine.committer.commit(write))",
        "    if True:\n        session.pipeline(write)",
        rule="R1",
    ),
    Change(
        "the request leaves before the intent is committed",
        "core/perform.py",
        "        answer = yield from ask(Commit(write))\n        check(answer)\n        held = answer.effect\n        if held is None:",
        "        yield SendEffect(call, proposal, vantage.at + 9, vantage.lease_now + 9)\n        answer = yield from ask(Commit(write))\n        check(answer)\n        held = answer.effect\n        if held is None:",
        rule="R2",
    ),
    Change(
        "the queue is committed newest first",
        "runtime/committer.py",
        "            batch.append(queue.popleft())",
        "            batch.append(queue.pop())",
        rule="R2",
    ),
    Change(
        "a step's record is dropped (never written)",
        "core/flows.py",
        "    yield Record(Draft(kind, slot, arguments_digest, preview, value, 0.0, attempt), blobs)",
        "    pass",
        rule="R2",
    ),
    Change(
        "the arguments decide the identity",
        "core/perform.py",
        "        key = derive_key(state.namespace, call.identity or",
        "        key = derive_key(state.namespace, args_digest.hex() + call.identity or",
        rule="R3",
    ),
    Change(
        "another request under an identity takes it over",
        "core/writes.py",
        "        if held.request_digest != asked.request_digest or",
        "        if",
        rule="R4",
    ),
    Change(
        "recorded arguments are not compared",
        "core/journal.py",
        "        if _FAMILY[entry.kind] != family or entry.args_digest != args_digest:",
        "        if _FAMILY[entry.kind] != family:",
        rule="R4",
    ),
    Change("unread entries do not stop a send", "core/journal.py", "        if stray:", "        if False:", rule="R4"),
    Change(
        "an opaque effect in doubt is sent again",
        "core/policy.py",
        "            if contract.at_least_once:",
        "            if True:",
        rule="R5",
    ),
    Change(
        "the key's window is not looked at",
        "core/policy.py",
        "    if until and now >= until:",
        "    if False:",
        rule="R5",
    ),
    Change(
        "an empty lookup counts at once",
        "core/policy.py",
        'answers if e.found == "absent" and e.at >= settled]',
        'answers if e.found == "absent"]',
        rule="R5",
    ),
    Change("one clear no is enough", "core/contract.py", "clear_nos: int = 2", "clear_nos: int = 1", rule="R5"),
    Change(
        "an unknown answer counts as refused",
        "core/policy.py",
        "        case _:\n            return Do.LOSE\n",
        "        case _:\n            return Do.REFUSE\n",
        rule="R6",
    ),
    Change(
        "an effect whose sender died counts as confirmed",
        "core/writes.py",
        "            taken = apply(taken, Event(do=Do.LOSE, at=at, reason=why))",
        "            taken = apply(taken, Event(do=Do.CONFIRM, at=at, receipt=b'null', reason=why))",
        rule="R6",
    ),
    Change(
        "an unsent answer counts as landed",
        "core/policy.py",
        '        case "landed":',
        '        case "landed" | "unsent":',
        rule="R6",
    ),
    Change(
        "the run's fence token is not compared",
        "core/writes.py",
        "    if run.fence != fence or run.status",
        "    if run.status",
        rule="R7",
    ),
    Change(
        "anybody may take anything",
        "core/lease.py",
        "        if holder_id in (0, self.owner) or",
        "        if True or",
        rule="R7",
    ),
    Change(
        "the effect's fence token is not compared",
        "core/writes.py",
        "        if held.fence != self.effect_fence or held.term < view.term.number:",
        "        if held.term < view.term.number:",
        rule="R7",
    ),
    Change(
        "a paused process sends whenever it wakes",
        "runtime/session.py",
        "        if clock.now() <= command.begin_until and not_paused and engine.leased():",
        "        if True:",
        rule="R7",
    ),
    Change(
        "what is remembered outlives another process's commit",
        "stores/sqlite/store.py",
        "            if version != self._version:",
        "            if not self._version:",
        rule="R7",
    ),
    Change(
        "a dead process is never noticed",
        "stores/sqlite/presence.py",
        "            path.unlink(missing_ok=True)\n            return True",
        "            return False",
        rule="R8",
    ),
    Change(
        "a run that waits for a person is left as running",
        "runtime/ending.py",
        "            return Ending(RunDo.SUSPEND, error",
        "            return Ending(None, error",
        rule="R8",
    ),
    Change(
        "the workflow gets the value that the body returned, not the one that was read back",
        "runtime/step.py",
        "return Result(True, stored, after)",
        "return Result(True, stored, value)",
        rule="R9",
    ),
    Change(
        "an unknown commit is not read again",
        "runtime/committer.py",
        "                if unknown == UNKNOWN_TRIES:",
        "                if True:",
        rule="R10",
    ),
    Change(
        "a recorded write is not recognised (effects)",
        "core/writes.py",
        "        if held.stamp == self.stamp:\n            return Answer(Verdict.DONE, effect=held)\n        if self.run_id and owned",
        "        if self.run_id and owned",
        rule="R10",
    ),
    Change(
        "an entry written twice is not recognised",
        "core/writes.py",
        "        if view.again and view.has_entry(self.run_id, self.draft.slot, self.draft.kind):",
        "        if False:",
        rule="R10",
    ),
    Change(
        "a store's error reaches the workflow as an exception of the effect",
        "runtime/session.py",
        "HALTING = (StoreError, Diverged,",
        "HALTING = (Diverged,",
        rule="R10",
    ),
    Change(
        "a failed attempt sends a second request at once",
        "runtime/session.py",
        "    return session.may_begin(command) or command.call.send(session, command.effect)",
        '    if (late := session.may_begin(command)) is not None:\n        return late\n    answer = command.call.send(session, command.effect)\n    return answer if answer.kind == "landed" else command.call.send(session, command.effect)',
        rule="R11",
    ),
    Change(
        "a resend goes to another account than the intent's",
        "core/perform.py",
        "or effect.status is Status.PARKED or effect.scope == call.scope:",
        "or effect.status is Status.PARKED or True:",
        rule="R4",
    ),
    Change(
        "a short window is relied on by whoever takes over",
        "core/policy.py",
        "    if contract.is_short and effect.taken_over:\n        return effect.first_sent_at\n",
        "",
        rule="R5",
    ),
    Change(
        "a used-up key is sent again", "core/policy.py", "    if told in _NOT_REPEATED:\n", "    if False:\n", rule="R5"
    ),
    Change(
        "an empty answer counts where it proves nothing",
        "core/policy.py",
        "        if not contract.absence:\n",
        "        if False:\n",
        rule="R5",
    ),
    Change(
        "a repeat that is refused for its credentials ends the effect",
        "core/policy.py",
        "answer.code not in UNKEYED_CODES",
        "True",
        rule="R5",
    ),
    Change(
        "what the receiver says had landed is taken for absent",
        "core/policy.py",
        '        if last_answer(effect) == "landed":\n',
        "        if False:\n",
        rule="R6",
    ),
    Change(
        "the receiver forgets keys: the ledger must show it",
        "testing/receiver.py",
        'known = self._by_key.get(key) if promise == "keyed" else None',
        "known = None",
        rule="R12",
    ),
    Change(
        "the receiver performs and writes nothing down",
        "testing/receiver.py",
        '        self._note("performed" if held is None else "repeated", name, key, body, receipt["number"])',
        "        pass",
        rule="R12",
    ),
    Change(
        "a run that is executed here already is executed beside it (def)",
        "runtime/runner.py",
        "        while self._local.setdefault(plan.proposal.id, token) is not token:\n"
        "            self._refuse_local(plan)\n            self._engine",
        "        while self._local.setdefault(plan.proposal.id, token) is None:\n"
        "            self._refuse_local(plan)\n            self._engine",
        "tests/runtime/test_running.py",
        rule="R7",
    ),
    Change(
        "a run that is executed here already is executed beside it (async def)",
        "runtime/runner.py",
        "        while self._local.setdefault(plan.proposal.id, token) is not token:\n"
        "            self._refuse_local(plan)\n            await",
        "        while self._local.setdefault(plan.proposal.id, token) is None:\n"
        "            self._refuse_local(plan)\n            await",
        "tests/runtime/test_running.py",
        rule="R7",
    ),
    Change(
        "who is not to wait for a run of this process waits",
        "runtime/runner.py",
        '        if plan.when_running == "refuse":\n            raise RunBusy(plan.proposal.id, "this process',
        '        if False:\n            raise RunBusy(plan.proposal.id, "this process',
        "tests/runtime/test_running.py",
        rule="R7",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
