"""The rules of the PostgreSQL store's statements, each broken on purpose; tests/breaking.py does it.

python -m tests.postgres.broken_on_purpose
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot", "")
HERE = "stores/postgres/queries.sql"
FENCE = "tests/contract/test_contract.py -k postgresql"
CHANGES = [
    Change(
        "whoever claims a run leaves its old owner the next place in its journal",
        "core/writes.py",
        "        if run.owner:\n            put_from_outside(view, run, taken,",
        "        if False:\n            put_from_outside(view, run, taken,",
        f"{FENCE} and learns_of_the_change",
        rule="R7",
    ),
    Change(
        "whoever frees a run does",
        "core/dispatch_writes.py",
        '        put_from_outside(view, run, freed, at, "free")\n',
        "        view.put_run(freed)\n",
        f"{FENCE} and learns_of_the_change",
        rule="R7",
    ),
    Change(
        "whoever cancels a run does",
        "core/writes.py",
        "        if run.owner:\n            put_from_outside(view, run, changed,",
        "        if False:\n            put_from_outside(view, run, changed,",
        f"{FENCE} and learns_of_the_change",
        rule="R7",
    ),
    Change(
        "what comes to stand in front of a backlog is never looked at while that lasts",
        "stores/postgres/desk.py",
        "        if uses < FRONT_USES:\n",
        "        if True:\n",
        "tests/postgres/test_fronts.py -k after_a_few_looks",
    ),
    Change(
        "what stands in front of a backlog is forgotten where that ends",
        "stores/postgres/desk.py",
        "            return known is not None\n",
        "            return False\n",
        "tests/postgres/test_fronts.py -k everything_is_looked_at",
    ),
    Change(
        "an entry alone is not judged by its fence token",
        "stores/postgres/store.py",
        "        if answer.verdict not in RECORDED:\n",
        "        if False:\n",
        "tests/contract/test_contract.py -k postgresql",
    ),
    Change(
        "an entry is appended on another timeline than the one it was decided on",
        HERE,
        "WHERE starts_with(pg_walfile_name(pg_current_wal_insert_lsn()), %b::text)\n",
        "WHERE length(%b::text) > 0\n",
        "tests/postgres/test_failover.py -k lives_through_a_failover",
    ),
    Change(
        "an entry is appended in a session whose commits do not wait for the disk",
        HERE,
        "    AND current_setting('synchronous_commit') IN ('on', 'remote_apply');\n",
        "    AND true;\n",
        "tests/postgres/test_pooler.py -k without_the_settings_of_ours",
    ),
    Change(
        "a session of our own is not told to wait for the disk",
        HERE,
        "    THEN 'remote_apply' ELSE 'on' END, false), set_config('lock_timeout', '10s', false),\n",
        "    THEN 'remote_apply' ELSE 'off' END, false), set_config('lock_timeout', '10s', false),\n",
        "tests/postgres/test_pooler.py -k without_the_settings_of_ours",
    ),
    Change(
        "a commit whose answer was lost counts as not committed",
        "stores/postgres/store.py",
        "            if certainly_not_committed(error):\n                raise\n            link.drop()\n",
        "            if True:\n                raise\n            link.drop()\n",
        "tests/postgres/test_commits.py -k at_any_statement",
        rule="R10",
    ),
    Change(
        "a warning at commit counts as success",
        "stores/postgres/store.py",
        "        if warning:\n",
        "        if False:\n",
        "tests/postgres/test_commits.py -k warning_at_commit",
        rule="R10",
    ),
    Change(
        "statements are prepared behind a pooler",
        "stores/postgres/store.py",
        "            if not self.promise.pooled:\n",
        "            if True:\n",
        "tests/postgres/test_pooler.py -k no_statement_is_prepared",
    ),
    Change(
        "a lost prepared statement is an error",
        "stores/postgres/wire.py",
        "            except (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement):\n",
        "            except psycopg.errors.DuplicatePreparedStatement:\n",
        "tests/postgres/test_pooler.py -k nobody_noticed",
    ),
    Change(
        "nobody waits for the end of the next worker",
        "runtime/reaper.py",
        "            if ended:\n",
        "            if ended is None:\n",
        "tests/worker/test_lookout.py -k long_before_anybody",
    ),
    Change(
        "each worker waits for the first, and nobody for the others",
        "runtime/reaper.py",
        "    return next((owner_id for owner_id in workers if owner_id > mine), workers[0] if workers else 0)\n",
        "    return workers[0] if workers else 0\n",
        "tests/worker/test_lookout.py -k waited_for_by_one",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
