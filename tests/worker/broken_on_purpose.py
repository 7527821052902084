"""Rules of the fleet, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.worker.broken_on_purpose          # all
python -m tests.worker.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot", "")
CHANGES = [
    Change(
        "a death counts as the last although others were there",
        "core/dispatch_writes.py",
        "    if deaths < (2 * deaths_max - 1 if beside else deaths_max):",
        "    if deaths < deaths_max:",
        "tests/worker/test_choosing.py",
    ),
    Change(
        "a run that never was alone is never quarantined",
        "core/dispatch_writes.py",
        "    if deaths < (2 * deaths_max - 1 if beside else deaths_max):",
        "    if beside or deaths < deaths_max:",
        "tests/worker/test_choosing.py",
    ),
    Change(
        "all runs on probation are taken at once",
        "core/dispatch_writes.py",
        "        admitted, self._full = not self._full, True",
        "        admitted = True",
        "tests/contract -k probation",
    ),
    Change(
        "a run stays on probation although its journal has grown",
        "core/dispatch_writes.py",
        "    return run.deaths >= PROBATION_DEATHS and recorded_length(view, run) == run.deaths_length",
        "    return run.deaths >= PROBATION_DEATHS",
        "tests/contract -k probation",
    ),
    Change(
        "the reaper forgets who was beside whom",
        "runtime/reaper.py",
        "self._free(run, vantage, had[run.owner] - 1) for run in left",
        "self._free(run, vantage, 0) for run in left",
        "tests/worker/test_takeover.py -k in_company",
    ),
    Change(
        "a database that does not answer ends a worker",
        "stores/postgres/connection.py",
        "    ping = psycopg.pq.PGconn.ping(address.conninfo.encode())\n",
        "    return False\n    ping = psycopg.pq.PGconn.ping(address.conninfo.encode())\n",
        "tests/worker/test_waiting_for_the_store.py",
    ),
    Change(
        "a worker waits for a database that refuses it",
        "stores/postgres/connection.py",
        "    return ping in (psycopg.pq.Ping.REJECT, psycopg.pq.Ping.NO_RESPONSE)",
        "    return True",
        "tests/worker/test_waiting_for_the_store.py -k told_from",
    ),
    Change(
        "a run is given back although the wait of one of its tasks has just ended",
        "runtime/tasks.py",
        "    if waiter is not None and waiter.done():\n        return False\n",
        "",
        "tests/waits/test_tasks_that_wait.py -k timer_has_come",
    ),
    Change(
        "a task that swallows its cancellation is waited for in vain",
        "runtime/tasks.py",
        "timeout=CANCEL_AGAIN_SECONDS",
        "timeout=None",
        "tests/runtime/test_cancellation.py -k swallows",
    ),
    Change(
        "nobody looks for the right to draw a run's number",
        "stores/postgres/queries.sql",
        "has_sequence_privilege('{schema}.runs_num_seq'::regclass, 'USAGE')",
        "true",
        "tests/postgres/test_opening.py -k right",
    ),
    Change(
        "an error that nobody foresaw ends a worker, and every run of it with it",
        "runtime/worker.py",
        "            except Exception as error:\n                seconds",
        "            except SurefootError as error:\n                seconds",
        "tests/worker/test_turns.py -k nobody_foresaw",
    ),
    Change(
        "a worker that always finds work looks at nobody else",
        "runtime/worker.py",
        "        self._looks = not (taken and self._looks)",
        "        self._looks = not taken",
        "tests/worker/test_turns.py -k always_finds_work",
    ),
    Change(
        "all who hear a ring are first",
        "runtime/reaper.py",
        "        return (mine + number) % (len(alike) + 1)\n",
        "        return (mine + number) % 1\n",
        "tests/worker/test_turns.py -k led_by_one",
    ),
    Change(
        "a worker that has to end at once goes on to wait for its database",
        "runtime/stopping.py",
        "        _on_a_thread(self._at_once)\n",
        "",
        "tests/worker/test_waiting_for_the_store.py -k went_away",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
