"""Rules of queues, leases and stopping, each broken on purpose; tests/breaking.py does it.

python -m tests.queues.broken_on_purpose          # all
python -m tests.queues.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot", "")
CHOOSING, TAKEOVER, WORKING, LIMITS = (
    f"tests/worker/test_{name}.py" for name in ("choosing", "takeover", "working", "limits_of_queues")
)
CONTRACT = "tests/contract/test_contract.py"
HERE = "tests/queues/test_answers_and_leases.py"
CHANGES = [
    # --- what a queue allows --------------------------------------------------------------------------------------
    Change(
        "more are under way than a queue allows",
        "core/dispatch.py",
        "            (not limits.concurrency or self.everywhere[row.queue] < limits.concurrency)\n",
        "            True\n",
        f"{CONTRACT} -k memory and limits_hold",
    ),
    Change(
        "more are under way in one worker than a queue allows",
        "core/dispatch.py",
        "            and (not limits.per_worker or self.here[row.queue] < limits.per_worker)\n",
        "",
        f"{CONTRACT} -k memory and limits_hold",
    ),
    Change(
        "more of one key are under way than a queue allows",
        "core/dispatch.py",
        "            and (not limits.per_key or not row.key or self.of_key[row.queue, row.key] < limits.per_key)\n",
        "",
        f"{CONTRACT} -k memory and limits_hold",
    ),
    Change(
        "more are started than a rate allows",
        "core/dispatch.py",
        "            and self.starts[row.queue] >= 1\n",
        "",
        f"{CONTRACT} -k memory and limits_hold",
    ),
    Change(
        "what was started is not counted against the rate",
        "core/dispatch_writes.py",
        "                view.desk.put_queue(spent(queue, count, now))\n",
        "                pass\n",
        f"{CONTRACT} -k memory and every_span",
    ),
    Change(
        "starts that are counted together count from the earliest of them",
        "core/dispatch.py",
        "        return replace(queue, recent=(*recent, (max(at, now), n + count)))\n",
        "        return replace(queue, recent=(*recent, (at, n + count)))\n",
        f"{HERE} -k kept_together",
    ),
    Change(
        "what was started under other limits is forgotten",
        "core/dispatch_writes.py",
        "            begun = held.recent if held is not None else ()\n",
        "            begun = ()\n",
        f"{CONTRACT} -k memory and changed_and_listed",
    ),
    Change(
        "a queue's limits do not hold for what other workers have: SQLite",
        "stores/sqlite/queries.sql",
        "FROM queue WHERE owner <> 0 AND queue = ?;",
        "FROM queue WHERE owner < 0 AND queue = ?;",
        f"{CONTRACT} -k sqlite and limits_hold",
    ),
    Change(
        "a queue's limits do not hold for what other workers have: PostgreSQL",
        "stores/postgres/queries.sql",
        "WHERE owner <> 0 AND queue = ANY (%b::text[]);",
        "WHERE owner < 0 AND queue = ANY (%b::text[]);",
        f"{CONTRACT} -k postgresql and limits_hold",
    ),
    # --- whose turn it is -----------------------------------------------------------------------------------------
    Change(
        "keys do not take turns",
        "core/dispatch.py",
        "    return -row.priority, room.of_key[place], turns.get(place, 0), row.since, row.run_id, line\n",
        "    return -row.priority, 0, turns.get(place, 0), row.since, row.run_id, line\n",
        f"{CHOOSING} -k keys_take_turns",
    ),
    Change(
        "it is nobody's turn for having waited longest",
        "core/dispatch.py",
        "    return -row.priority, room.of_key[place], turns.get(place, 0), row.since, row.run_id, line\n",
        "    return -row.priority, room.of_key[place], 0, row.since, row.run_id, line\n",
        f"{CHOOSING} -k none_for_longest",
    ),
    Change(
        "a worker forgets whose turn it was",
        "runtime/worker.py",
        "        self._remember_turns(taken)\n",
        "",
        f"{LIMITS} -k customer_with_500 and sqlite",
    ),
    Change(
        "priority does not go before turns",
        "core/dispatch.py",
        "    return -row.priority, room.of_key[place], turns.get(place, 0), row.since, row.run_id, line\n",
        "    return 0, room.of_key[place], turns.get(place, 0), row.since, row.run_id, line\n",
        f"{CHOOSING} -k priority_goes_before",
    ),
    Change(
        "the youngest of a key is taken first",
        "core/dispatch.py",
        "key=lambda row: (row.since, row.run_id), reverse=True",
        "key=lambda row: (row.since, row.run_id), reverse=False",
        f"{CHOOSING} -k age_decides",
    ),
    Change(
        "a key that is full stops the others of its queue",
        "core/dispatch.py",
        "            continue  # nor will it",
        "            break  # nor will it",
        f"{CHOOSING} -k full_key",
    ),
    Change(
        "a busy key hides the others: SQLite",
        "stores/sqlite/desk.py",
        "        if len(rows) == limit:\n",
        "        if False:\n",
        f"{CONTRACT} -k sqlite and hides_no_other",
    ),
    Change(
        "a busy key hides the others: PostgreSQL",
        "stores/postgres/queries.sql",
        "    FROM behind WHERE behind.key IS NOT NULL AND behind.place < %(keys)b::integer)",
        "    FROM behind WHERE behind.key IS NULL AND behind.place < %(keys)b::integer)",
        f"{CONTRACT} -k postgresql and hides_no_other",
    ),
    # --- what is put there, and who may take it -------------------------------------------------------------------
    Change(
        "one `dedupe` starts as many runs as it is given",
        "runtime/queues.py",
        "    if dedupe is None:\n        return run_id\n",
        "    if True:\n        return run_id\n",
        f"{WORKING} -k same_id_again",
    ),
    Change(
        "other arguments under one id are taken for the same run",
        "runtime/queues.py",
        "    if held is not None and (held.args_digest, held.workflow) != (proposal.args_digest, proposal.workflow):\n",
        "    if False:\n",
        f"{WORKING} -k same_id_again",
    ),
    Change(
        "a delay is ignored",
        "runtime/queues.py",
        "        wake_at=engine.time() + length if length else 0.0,\n",
        "        wake_at=0.0,\n",
        f"{LIMITS} -k never_early and sqlite",
    ),
    Change(
        "a worker takes from queues that it does not serve",
        "stores/base.py",
        "        and row.queue in served.queues\n        and (row.workflow",
        "        and (row.workflow",
        f"{CONTRACT} -k memory and cannot_run_is_left",
    ),
    Change(
        "a worker takes versions that it has not: memory",
        "stores/base.py",
        "        and (row.workflow, row.version) in served.workflows\n",
        "        and row.workflow in dict(served.workflows)\n",
        f"{CONTRACT} -k memory and cannot_run_is_left",
    ),
    Change(
        "a worker takes workflows and versions that it has not: SQLite",
        "stores/sqlite/queries.sql",
        "AND workflow || '/' || version IN (SELECT value FROM json_each(?))\nORDER BY priority DESC, since LIMIT ?;",
        "AND (1 OR workflow || '/' || version IN (SELECT value FROM json_each(?)))\n"
        "ORDER BY priority DESC, since LIMIT ?;",
        f"{CONTRACT} -k sqlite and cannot_run_is_left",
    ),
    Change(
        "a worker takes versions that it has not: PostgreSQL",
        "stores/postgres/queries.sql",
        "AND q.priority < asked.priority\n"
        "    AND (q.workflow, q.version) IN (SELECT * FROM unnest(%(workflows)b::text[], %(versions)b::text[]))\n",
        "AND q.priority < asked.priority\n    AND q.workflow = ANY (%(workflows)b::text[])\n",
        f"{CONTRACT} -k postgresql and cannot_run_is_left",
    ),
    Change(
        "a run that no worker has the version for looks served",
        "core/dispatch.py",
        "    if row.version in versions:\n",
        "    if True:\n",
        f"{CHOOSING} -k told_with_the_reason",
    ),
    Change(
        "a claim whose answer was lost takes more",
        "core/dispatch_writes.py",
        "        if view.again:\n            mine =",
        "        if False:\n            mine =",
        f"{CONTRACT} -k memory and claim_that_comes_again",
    ),
    Change(
        "what a claim took whose answer was lost stays with nobody",
        "runtime/worker.py",
        "            self._left.update((run.id, run) for run in self._unknown())\n",
        "",
        f"{HERE} -k answer_never_came",
    ),
    Change(
        "a worker takes runs on a lease that is over",
        "runtime/worker.py",
        "        if not engine.leased():\n",
        "        if False:\n",
        f"{HERE} -k lease_that_is_over",
    ),
    # --- takeover, death, retry -----------------------------------------------------------------------------------
    Change(
        "a claim leaves the fence token as it is",
        "core/run.py",
        "            fence=run.fence + 1,\n            owner=owner,\n            updated_at=at,\n",
        "            fence=run.fence,\n            owner=owner,\n            updated_at=at,\n",
        f"{CONTRACT} -k memory and row_until_it_ends",
    ),
    Change(
        "a live owner's work is taken from it",
        "core/lease.py",
        "        return holder.boot != self.boot or holder.lease_until <= self.lease_now\n",
        "        return True\n",
        f"{CONTRACT} -k memory and live_owner_keeps",
    ),
    Change(
        "a lease that is over protects",
        "core/lease.py",
        "        return holder.boot != self.boot or holder.lease_until <= self.lease_now\n",
        "        return holder.boot != self.boot\n",
        f"{CONTRACT} -k memory and live_owner_keeps",
    ),
    Change(
        "a lease of another boot protects",
        "core/lease.py",
        "        return holder.boot != self.boot or holder.lease_until <= self.lease_now\n",
        "        return holder.lease_until <= self.lease_now\n",
        f"{CONTRACT} -k memory and live_owner_keeps",
    ),
    Change(
        "presence hastens no takeover",
        "runtime/engine.py",
        "        gone = frozenset({suspect}) if suspect and self.store.is_gone(suspect) else frozenset[int]()\n",
        "        gone = frozenset[int]()\n",
        f"{TAKEOVER} -k goes_on_elsewhere_at_once and sqlite",
    ),
    Change(
        "one's own lease is judged by the earliest that it could be",
        "runtime/engine.py",
        "        return self.lease_clock.latest() < self.lease_until\n",
        "        return self.lease_clock.earliest() < self.lease_until\n",
        f"{HERE} -k judges_its_own",
    ),
    Change(
        "another's lease is judged by the latest that it could be",
        "runtime/engine.py",
        "            lease_now=self.lease_clock.earliest(),\n",
        "            lease_now=self.lease_clock.latest(),\n",
        f"{HERE} -k judges_its_own",
    ),
    Change(
        "a live owner's run is freed",
        "core/dispatch_writes.py",
        "        if run.owner == self.vantage.owner or not self.vantage.may_take_from(run.owner, holder):\n",
        "        if False:\n",
        f"{CONTRACT} -k memory and live_ones_is_not",
    ),
    Change(
        "an owner that has renewed its lease is taken for one that left",
        "core/dispatch_writes.py",
        "        if self.seen and held is not None and held.stamp != self.seen:\n",
        "        if False:\n",
        f"{CONTRACT} -k memory and leaves_unless",
    ),
    Change(
        "a run that keeps killing is started for ever",
        "core/dispatch_writes.py",
        "    if deaths < (2 * deaths_max - 1 if beside else deaths_max):",
        "    if True:",
        f"{CONTRACT} -k memory and keeps_killing",
    ),
    Change(
        "a run that was quarantined stays in its queue",
        "core/dispatch.py",
        "        case RunStatus.PENDING:\n",
        "        case RunStatus.PENDING | RunStatus.QUARANTINED:\n",
        f"{CONTRACT} -k memory and keeps_killing",
    ),
    Change(
        "deaths count although the journal grew between them",
        "core/dispatch_writes.py",
        "    deaths = run.deaths + 1 if run.deaths and run.deaths_length == length else 1\n",
        "    deaths = run.deaths + 1\n",
        f"{CHOOSING} -k does_not_grow",
    ),
    Change(
        "a retry forgets no deaths",
        "core/run.py",
        "    deaths = 0 if do is RunDo.RETRY else run.deaths\n",
        "    deaths = run.deaths\n",
        f"{CONTRACT} -k memory and keeps_killing",
    ),
    Change(
        "what has ended is tried again",
        "core/dispatch_writes.py",
        "        if run.status in FINAL:\n            return Answer(Verdict.ENDED, run=run)\n"
        "        if run.status in (RunStatus.PENDING, RunStatus.RUNNING):\n",
        "        if run.status in (RunStatus.PENDING, RunStatus.RUNNING):\n",
        f"{WORKING} -k what_has_ended",
    ),
    # --- stopping -------------------------------------------------------------------------------------------------
    Change(
        "a worker that is stopping takes one more",
        "runtime/worker.py",
        "            self._runner.stop_claimed()\n",
        "            self._claim(1)\n            self._runner.stop_claimed()\n",
        f"{HERE} -k gives_its_runs_back",
    ),
    Change(
        "a worker that is stopping goes on to the end of its runs",
        "runtime/worker.py",
        "            self._runner.stop_claimed()\n",
        "            pass\n",
        f"{HERE} -k gives_its_runs_back",
    ),
    Change(
        "a step that outlasts the grace time keeps its run",
        "runtime/worker.py",
        'self._release(runs, "its worker was told',
        'self._release([], "its worker was told',
        f"{TAKEOVER} -k outlasts_the_grace",
    ),
    Change(
        "a worker that ended is still told of as serving",
        "runtime/worker.py",
        "            self._engine.announce(None)\n",
        "            pass\n",
        f"{WORKING} -k on_a_loop",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
