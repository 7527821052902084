"""Rules of waits and timers, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.waits.broken_on_purpose          # all
python -m tests.waits.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot", "")
SIGNALS, TIMERS, TASKS = (f"tests/waits/test_{name}.py" for name in ("signals", "timers", "tasks_that_wait"))
CHOICES = "tests/runtime/test_first_and_timeout.py"
CONTRACT = "tests/contract/test_contract.py"
CHANGES = [
    Change(
        "a message that comes early is dropped",
        "core/dispatch_writes.py",
        "        view.desk.put_mail(replace(self.mail, number=run.mail + 1))\n",
        "        if run.status is RunStatus.WAITING:\n"
        "            view.desk.put_mail(replace(self.mail, number=run.mail + 1))\n",
        f"{SIGNALS} -k early_messages and sqlite",
    ),
    Change(
        "one message is read by two waits",
        "runtime/waiting.py",
        "                session.heard.add(found.number)\n",
        "                pass\n",
        f"{SIGNALS} -k get_a_message_each and sqlite",
    ),
    Change(
        "what a later branch has read, and replay has yet to reach, is read again",
        "runtime/waiting.py",
        "    return session.heard | {number for _, number in _ahead(session)}\n",
        "    return session.heard\n",
        f"{SIGNALS} -k not_read_again_by_an_earlier_one",
    ),
    Change(
        "a message that was read before a crash is read again",
        "runtime/waiting.py",
        "    session.heard.add(known.number)\n",
        "",
        f"{SIGNALS} -k one_by_one and sqlite",
    ),
    Change(
        "the message that was read is not recorded",
        "runtime/waiting.py",
        "    return record(pause(session, branch, wait, ear.look, ear.read))\n",
        "    return pause(session, branch, wait, ear.look, ear.read)\n",
        f"{SIGNALS} -k early_messages and sqlite",
    ),
    Change(
        "a message that is sent again under its id counts twice",
        "core/dispatch_writes.py",
        "        sent = next((m for m in before if m.id == self.mail.id), None)\n",
        "        sent = None\n",
        f"{SIGNALS} -k one_message_and_another_value and sqlite",
    ),
    Change(
        "another value under one message id is taken for the same message",
        "core/dispatch_writes.py",
        "            same = (sent.name, sent.value) == (self.mail.name, self.mail.value)\n",
        "            same = True\n",
        f"{SIGNALS} -k one_message_and_another_value and sqlite",
    ),
    Change(
        "of several that want to be first each wins",
        "core/dispatch_writes.py",
        "        if self.first_only and any(m.name == self.mail.name for m in before):\n",
        "        if False:\n",
        f"{SIGNALS} -k of_64_threads and sqlite",
    ),
    Change(
        "a run that has ended takes messages",
        "core/dispatch_writes.py",
        "        if run.status in FINAL:\n"
        "            return Answer(Verdict.ENDED, run=run)\n"
        "        if self.first_only",
        "        if self.first_only",
        f"{SIGNALS} -k unknown_or_ended and sqlite",
    ),
    Change(
        "a message wakes nobody",
        "core/dispatch_writes.py",
        "        woken = run.status is RunStatus.WAITING and any(w.name == self.mail.name for w in run.waits)\n",
        "        woken = False\n",
        f"{SIGNALS} -k one_by_one and sqlite",
    ),
    Change(
        "a message that comes between the last look and the giving back wakes nobody",
        "core/writes.py",
        "            missed = run.mail > self.mail_seen or run.cancel_at",
        "            missed = run.cancel_at",
        f"{SIGNALS} -k between_the_last_look and sqlite",
    ),
    Change(
        "a message that does not fit is read all the same",
        "runtime/waiting.py",
        "            if not why:\n                return message\n",
        "            if True:\n                return message\n",
        f"{SIGNALS} -k does_not_fit_the_type and sqlite",
    ),
    Change(
        "a wait with a time limit begins anew after a crash",
        "runtime/choices.py",
        'mark(f"within:{name}", lambda: session.engine.due_after(length), float)',
        "session.engine.due_after(length)",
        f"{TIMERS} -k no_crash_begins_it_anew and memory",
    ),
    Change(
        "that no message came in time is not recorded",
        "runtime/choices.py",
        "        return mark(slot, lambda: heard, Heard)\n",
        "        return heard if heard is not None and not heard.number else mark(slot, lambda: heard, Heard)\n",
        f"{SIGNALS} -k timeout_is_recorded and sqlite",
    ),
    Change(
        "of several waits each reads its message, and one is lost",
        "runtime/waiting.py",
        "            if contest is not None and contest.winner not in (None, index):\n                return None\n",
        "",
        f"{SIGNALS} -k first_of_several",
    ),
    Change(
        "a wait that had read before a crash does not win",
        "runtime/waits.py",
        "            if contest.winner is None and has_read(session, path):\n",
        "            if False:\n",
        f"{SIGNALS} -k had_read_before_a_crash",
    ),
    Change(
        "code that changed waits for a message that nobody will send",
        "runtime/waiting.py",
        "        session.state.replay.may_wait(branch, reason_of(wait))\n",
        "        pass\n",
        f"{SIGNALS} -k renamed_wait",
    ),
    Change(
        "a workflow sends where a replay would send again",
        "runtime/waiting.py",
        "    if scope is not None and scope.branch is not None:\n",
        "    if False:\n",
        f"{SIGNALS} -k would_send_again",
    ),
    Change(
        "a run that waits for a message keeps its place in the worker",
        "runtime/waiting.py",
        '    if wait.kind != "timer":\n        return True\n',
        '    if wait.kind != "timer":\n        return False\n',
        f"{TASKS} -k take_no_place and sqlite",
    ),
    Change(
        "the due time of a sleep is not recorded",
        "runtime/choices.py",
        'mark("sleep", lambda: session.engine.due_after(length), float)',
        "session.engine.due_after(length)",
        f"{TIMERS} -k starts_after_the_step and memory",
    ),
    Change(
        "the instant of sleep_until is not recorded",
        "runtime/choices.py",
        'mark("sleep", when.timestamp, float)',
        "when.timestamp()",
        f"{TIMERS} -k no_crash_begins_it_anew and memory",
    ),
    Change(
        "timers run by the wall clock",
        "runtime/lease_clock.py",
        "self._clock.lease_now() + self._tie()",
        "self._clock.now()",
        f"{TIMERS} -k step_of_the_wall_clock and memory",
    ),
    Change(
        "each process ties its timers to the wall clock anew",
        "runtime/lease_clock.py",
        "        return kept.started_at\n",
        "        return self._clock.now() - self._clock.lease_now()\n",
        f"{TIMERS} -k starts_after_the_step and memory",
    ),
    Change(
        "the clock of the boot before goes on after a reboot",
        "runtime/lease_clock.py",
        "        if kept is None or kept.boot != boot:\n",
        "        if kept is None:\n",
        f"{TIMERS} -k next_boot_begins_anew",
    ),
    Change(
        "of two processes that tie the clock at once the second counts",
        "core/writes.py",
        "        if held is None or held.boot != self.owner.boot:\n",
        "        if True:\n",
        f"{TIMERS} -k tie_the_clock and memory",
    ),
    Change(
        "the store's clock is taken at its latest",
        "runtime/lease_clock.py",
        "        return self.earliest() if self._shared is not None else",
        "        return self.latest() if self._shared is not None else",
        f"{TIMERS} -k shared_clock",
    ),
    Change(
        "a time that is to pass counts from the earliest",
        "runtime/lease_clock.py",
        "        now = self.latest() if self._shared is not None else self.time()\n",
        "        now = self.time()\n",
        f"{TIMERS} -k shared_clock",
    ),
    Change(
        "a timer is over five seconds early",
        "runtime/choices.py",
        "        return True if session.engine.time() >= due else None\n",
        "        return True if session.engine.time() >= due - 5 else None\n",
        f"{TIMERS} -k step_of_the_wall_clock and memory",
    ),
    Change(
        "a run that sleeps is taken before its time: memory",
        "stores/base.py",
        "        and row.due_at <= now\n",
        "",
        f"{CONTRACT} -k memory and before_its_time",
    ),
    Change(
        "a run that sleeps is taken before its time: SQLite",
        "stores/sqlite/queries.sql",
        "WHERE asleep = 1 AND due_at <= ?;",
        "WHERE asleep = 1 AND due_at <= ? + 3600;",
        f"{CONTRACT} -k sqlite and before_its_time",
    ),
    Change(
        "a run that sleeps is taken before its time: PostgreSQL",
        "stores/postgres/queries.sql",
        "AND q.due_at <= %(now)b::double precision AND",
        "AND q.due_at <= %(now)b::double precision + 3600 AND",
        f"{CONTRACT} -k postgresql and before_its_time",
    ),
    Change(
        "of several timers the latest wakes the run",
        "runtime/ending.py",
        "    wake_at = min((wait.until",
        "    wake_at = max((wait.until",
        f"{TIMERS} -k wake_at_the_earliest and sqlite",
    ),
    Change(
        "a block with a timeout begins anew after a crash",
        "runtime/waits.py",
        "        due: float = mark(name, lambda: self._session.engine.due_after(self._seconds), float)\n",
        "        due: float = self._session.engine.due_after(self._seconds)\n",
        f"{TIMERS} -k begun_anew",
    ),
    Change(
        "a block's end is not waited for once its run was given back",
        "runtime/ending.py",
        "    return *waits, *session.deadlines.values()\n",
        "    return waits\n",
        f"{TIMERS} -k although_its_run_was_given_back and sqlite",
    ),
    Change(
        "a timer that ran out while nobody was there ends what was recorded",
        "runtime/waits.py",
        "            await _catch_up(session, tasks, paths)\n",
        "",
        f"{TIMERS} -k while_nobody_was_there",
    ),
    Change(
        "who came first is not recorded",
        "runtime/waits.py",
        "            await _record(session, branch, name, winner)\n        await asyncio.wait([tasks[winner]])\n",
        "        await asyncio.wait([tasks[winner]])\n",
        f"{SIGNALS} -k who_came_first",
    ),
    Change(
        "that a block's time was over is not recorded",
        "runtime/waits.py",
        "                await _record(self._session, self._branch, self._name, self.fired)\n",
        "                pass\n",
        CHOICES,
    ),
    Change(
        "a run that sleeps where it is does not learn that it was cancelled",
        "runtime/waiting.py",
        '        session.cancelled = run.reason or "cancelled"\n',
        "        pass\n",
        f"{TIMERS} -k it_was_cancelled",
    ),
    Change(
        "a run that sleeps where it is does not learn that it was taken over",
        "runtime/waiting.py",
        "    if run is None or run.fence != session.state.fence:\n",
        "    if False:\n",
        f"{TIMERS} -k it_was_taken_over",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
