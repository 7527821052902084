"""Rules of riding, each broken on purpose; tests/breaking.py does it, and says what counts as seen.

python -m tests.inside.broken_on_purpose          # all
python -m tests.inside.broken_on_purpose WORD     # those whose description holds the word
"""

from __future__ import annotations

from tests.breaking import Area, Change, main

AREA = Area("src/surefoot", "tests/inside")
RIDING, WAKING, SCRIPT, PARTS = (f"test_{n}.py" for n in ("riding", "waking", "supervised", "engine_parts"))
CHANGES = [
    Change(
        "a message is waited for by a thread, not by the engine",
        "runtime/ending.py",
        "    return session.rides and all(",
        "    return False and all(",
        f"{RIDING} -k a_message_is",
    ),
    Change(
        "a timer is waited for where it is",
        "runtime/waiting.py",
        "(session.patient or session.rides or waits_for_others(session))",
        "(session.patient or waits_for_others(session))",
        f"{RIDING} -k a_timer_is",
    ),
    Change(
        "a store that is out is final",
        "inside/riding.py",
        "    if isinstance(error, StoreError | RunBusy):\n        return False\n",
        "    if isinstance(error, StoreError | RunBusy):\n        return True\n",
        f"{RIDING} -k tried_again",
    ),
    Change(
        "a run that has failed is tried for ever",
        "inside/riding.py",
        "    return run is not None and run.status in STANDS_STILL",
        "    return False",
        f"{RIDING} -k is_final",
    ),
    Change(
        "other arguments are tried for ever",
        "inside/riding.py",
        "    if isinstance(error, RunMismatch | Diverged | Damaged):\n        return True\n",
        "    if isinstance(error, RunMismatch | Diverged | Damaged):\n        return False\n",
        f"{RIDING} -k is_final",
    ),
    Change(
        "long ids are cut and nothing more",
        "inside/parked.py",
        '    return f"{text[: ID_CHARACTERS_MAX - len(digest) - 1]}~{digest}"',
        "    return text[:ID_CHARACTERS_MAX]",
        f"{RIDING} -k stay_apart",
    ),
    Change(
        "an address that comes too late is an error",
        "inside/parked.py",
        "    except RunEnded:\n        return\n",
        "    except RunEnded:\n        raise\n",
        f"{RIDING} -k takes_no_address",
    ),
    Change(
        "a waker tells before anybody has decided",
        "inside/waking.py",
        "if run.wake_at and run.wake_at <= now)",
        "if True)",
        f"{WAKING} -k before_somebody",
    ),
    Change(
        "a waker takes a call that failed for made",
        "inside/waking.py",
        "            return False\n        self._told[run.id]",
        "        self._told[run.id]",
        f"{WAKING} -k was_lost",
    ),
    Change(
        "a waker calls but once",
        "inside/waking.py",
        "(fence == run.fence and now < at + AGAIN_SECONDS)",
        "fence == run.fence",
        f"{WAKING} -k led_to_nothing",
    ),
    Change(
        "a waker tells the waiters of other engines",
        "inside/waking.py",
        ' or address["engine"] != self._engine or ',
        " or ",
        f"{WAKING} -k another_engine",
    ),
    Change(
        "a task that its worker's death would lose is taken",
        "inside/celery.py",
        "    if not late or not lost:",
        "    if False:",
        f"{PARTS} -k would_lose",
    ),
    Change(
        "a parked task gives up after three looks",
        "inside/celery.py",
        "countdown=pause, max_retries=FOR_EVER)",
        "countdown=pause, max_retries=None)",
        f"{PARTS} -k retried_for_ever",
    ),
    Change(
        "the invocation does not name the run",
        "inside/langgraph.py",
        "    if invocation := asked.get(INVOCATION):",
        "    if invocation := None:",
        f"{PARTS} -k invocation_names",
    ),
    Change(
        "a node that is resumed too early goes on without its run",
        "inside/langgraph.py",
        "    while True:\n        done = attempt(sf,",
        "    for _ in range(1):\n        done = attempt(sf,",
        f"{PARTS} -k resumed_too_early",
    ),
    Change(
        "a workflow that goes on as new gets the first one's result",
        "inside/temporal.py",
        'own = (info.workflow_run_id,) if per == "execution" else ()',
        "own = ()",
        f"{PARTS} -k execution_is_in_the_id",
    ),
    Change(
        "a parked activity raises its error from itself",
        "inside/temporal.py",
        "    return _give(own, done)\n\n\ndef ride_sync(",
        "    try:\n        return _give(own, done)\n    except Exception as error:\n"
        "        raise error from error\n\n\ndef ride_sync(",
        f"{PARTS} -k can_be_sent",
    ),
    Change(
        "a script that parked says that it is done",
        "inside/script.py",
        "        case Parked() | StoreError() | RunBusy():\n            return Exit.AGAIN",
        "        case Parked() | StoreError() | RunBusy():\n            return Exit.DONE",
        f"{SCRIPT} -k opaque_charge",
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
