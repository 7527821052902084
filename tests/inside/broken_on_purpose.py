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
        RIDING,
    ),
    Change(
        "a run that has failed is tried for ever",
        "inside/riding.py",
        "    return run is not None and run.status in STANDS_STILL",
        "    return False",
        RIDING,
    ),
    Change(
        "other arguments are tried for ever",
        "inside/riding.py",
        "    if isinstance(error, RunMismatch | Diverged | Damaged):\n        return True\n",
        "    if isinstance(error, RunMismatch | Diverged | Damaged):\n        return False\n",
        RIDING,
    ),
    Change(
        "long ids are cut and nothing more",
        "inside/parked.py",
        '    return f"{text[: ID_CHARACTERS_MAX - len(digest) - 1]}~{digest}"',
        "    return text[:ID_CHARACTERS_MAX]",
        RIDING,
    ),
    Change(
        "an address that comes too late is an error",
        "inside/parked.py",
        "    except RunEnded:\n        return\n",
        "    except RunEnded:\n        raise\n",
        RIDING,
    ),
    Change(
        "a waker tells before anybody has decided",
        "inside/waking.py",
        "if run.wake_at and run.wake_at <= now)",
        "if True)",
        WAKING,
    ),
    Change(
        "a waker takes a call that failed for made",
        "inside/waking.py",
        "            return False\n        self._told[run.id]",
        "        self._told[run.id]",
        WAKING,
    ),
    Change(
        "a waker calls but once",
        "inside/waking.py",
        "(fence == run.fence and now < at + AGAIN_SECONDS)",
        "fence == run.fence",
        WAKING,
    ),
    Change(
        "a waker tells the waiters of other engines",
        "inside/waking.py",
        ' or address["engine"] != self._engine or ',
        " or ",
        WAKING,
    ),
    Change(
        "a task that its worker's death would lose is taken",
        "inside/celery.py",
        "    if not late or not lost:",
        "    if False:",
        PARTS,
    ),
    Change(
        "a parked task gives up after three looks",
        "inside/celery.py",
        "countdown=pause, max_retries=FOR_EVER)",
        "countdown=pause, max_retries=None)",
        PARTS,
    ),
    Change(
        "the invocation does not name the run",
        "inside/langgraph.py",
        "    if invocation := asked.get(INVOCATION):",
        "    if invocation := None:",
        PARTS,
    ),
    Change(
        "a node that is resumed too early goes on without its run",
        "inside/langgraph.py",
        "    while True:\n        done = attempt(sf,",
        "    for _ in range(1):\n        done = attempt(sf,",
        PARTS,
    ),
    Change(
        "a workflow that goes on as new gets the first one's result",
        "inside/temporal.py",
        'own = (info.workflow_run_id,) if per == "execution" else ()',
        "own = ()",
        PARTS,
    ),
    Change(
        "a parked activity raises its error from itself",
        "inside/temporal.py",
        "    return _give(own, done)\n\n\ndef ride_sync(",
        "    try:\n        return _give(own, done)\n    except Exception as error:\n"
        "        raise error from error\n\n\ndef ride_sync(",
        PARTS,
    ),
    Change(
        "a script that parked says that it is done",
        "inside/script.py",
        "        case Parked() | StoreError() | RunBusy():\n            return Exit.AGAIN",
        "        case Parked() | StoreError() | RunBusy():\n            return Exit.DONE",
        SCRIPT,
    ),
]

if __name__ == "__main__":
    main(AREA, CHANGES)
