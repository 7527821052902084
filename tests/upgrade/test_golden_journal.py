"""Yesterday's journal still replays: `golden_v1.sql` is a user's file, made by schema 1, on a machine since restarted.

It holds a run that succeeded, one whose process died while it was sending (keyed, in doubt, under a lease of a day),
and one that waits for a person (opaque, parked).
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from surefoot import RunBusy, RunWaiting, Surefoot
from surefoot.core.effect import Do, Event, Evidence, Status
from surefoot.core.run import RunStatus
from surefoot.core.writes import DecideEffect, Verdict
from surefoot.stores.records import encode, open_effect, open_owner, open_run, sealed
from surefoot.stores.sqlite.store import SqliteStore
from surefoot.testing.clock import FakeClock
from tests.upgrade import agents
from tests.upgrade.make_golden import GOLDEN_AT, GOLDEN_BOOT, RUNS, rebuild

GOLDEN = Path(__file__).with_name("golden_v1.sql")
A_CONTRACT = "names, numbers and digests in users' journals are a contract: files hold them, so they never change"
RESULT = {
    "notes": ["notes on tides", "notes on left", "notes on right", "no 7", "notes on tides"],
    "at": "2027-01-15T08:00:00+00:00",
    "length": 500,
    "ticket": {"ticket": "tides"},
    "paid": {"order": "tides", "amount": 40},
}
CHARGE_KEY = "73c09142-a14a-4760-a73a-41f929c41876"
JOURNALS = {
    "done": [
        (1, "read", "14b80381c9cc649d", "025e7b956b5bbc0145dac4ba"),
        (1, "0/read", "71fefcde03f2d95e", "93770ccf802e9f2ec24840ee"),
        (1, "1/read", "85a422fae2d1bebb", "8bbce0025a93f24f67153dcf"),
        (2, "fragile", "9a6d47dd67e82e3f", "ae3a79922ca3e1692892a203"),
        (5, "patched:twice", "", "ae57bbbad054abe93bc8229f"),
        (1, "read#1", "14b80381c9cc649d", "51871e8c56a8c70e0fe6891a"),
        (5, "now", "", "a662771a60f5104e1a53ffab"),
        (1, "long read", "e28d187cb8461cba", "9123923739c5cd7a7dc3aed3"),
        (3, "open ticket", "d497405ada531780", "072d591543bba40c169b8f04"),
        (4, "open ticket", "d497405ada531780", "c7a32855681ee123bffecec5"),
        (3, "charge", "4313b34b06811193", "4f8815748818da069a46b870"),
        (4, "charge", "4313b34b06811193", "e98a5fec4f264e88874b27eb"),
    ],
    "unfinished": [
        (1, "read", "7cc182c49b57f876", "5cb749d60b91f56695b4a64e"),
        (3, "charge", "97f2cc3ce2ae2c55", "985517a719ed9953a96331ac"),
    ],
    "parked": [
        (1, "read", "af8a58a3148c13e8", "8c535844a8c2d8c88b17f0ba"),
        (3, "mail", "0699da3e7c9d4e0e", "28a5d7e30e81aafcc70f8ff3"),
    ],
}
"""Kind, slot, digest of the arguments, link of the chain."""
RUN_STATUSES = {
    "done": ("golden order", "succeeded", "286c2b8598078665902d273487c447a9"),
    "unfinished": ("golden charging", "running", "5287ae58ae520314ef465f8b01a8fe70"),
    "parked": ("golden mailing", "waiting", "01415db886b489e2dd11b5c4a0cbcabf"),
}
EFFECTS = {
    "bbb8567e2d2a481e967313d490706f38": (
        *("ticket:tides", "open ticket", "confirmed", "natural"),
        *("bbb8567e-2d2a-481e-9673-13d490706f38", "81333b580eea52366689dc41a70521ef"),
    ),
    "b056543fa7f09aac42be37db66800246": (
        *("run:done:charge", "charge", "confirmed", "keyed"),
        *("b056543f-a7f0-4aac-82be-37db66800246", "27536c92031b253ac41a016791b2f0e6"),
    ),
    "73c09142a14ab760e73a41f929c41876": (
        *("run:unfinished:charge", "charge", "attempted", "keyed"),
        *(CHARGE_KEY, "7c85f63ae978d817ab958b8066f61f17"),
    ),
    "bf20b6edef7640e9824c51c91286f82f": (
        *("run:parked:mail", "mail", "parked", "opaque"),
        *("bf20b6ed-ef76-40e9-824c-51c91286f82f", "01415db886b489e2dd11b5c4a0cbcabf"),
    ),
}
"""Identity, name, status, kind of contract, the key as the receiver gets it, digest of the request."""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    agents.SENT.clear()
    rebuild(GOLDEN.read_text(), tmp_path / "agents.db")
    return tmp_path / "agents.db"


@contextmanager
def surefoot(db: Path, *, later: float = 60.0, boot: str = "") -> Iterator[Surefoot]:
    """Today's process, `later` seconds after the file was left; of another boot, unless `boot` says which."""
    with closing(SqliteStore(db)) as store:
        store.lease_boot = boot or store.lease_boot
        with Surefoot(store, clock=FakeClock(GOLDEN_AT + later)) as sf:
            yield sf


def run(sf: Surefoot, run_id: str, **options: Any) -> Any:
    workflow, argument = RUNS[run_id]
    return sf.run(workflow, argument, id=run_id, **options)


def read(store: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Runs, journals and effects, in the shape of the tables above."""
    runs, journals = {}, {}
    for run_id in RUNS:
        record, entries = store.read_run(run_id)
        runs[run_id] = (record.workflow, str(record.status), record.args_digest.hex())
        journals[run_id] = [(int(e.kind), e.slot, e.args_digest.hex(), e.digest.hex()) for e in entries]
    effects = {
        e.key: (e.identity, e.name, str(e.status), str(e.contract.kind), e.sent_key, e.request_digest.hex())
        for e in store.find_effects()
    }
    return runs, journals, effects


# --- what is in the file --------------------------------------------------------------------------------------------


def test_the_golden_file_reads_as_it_was_written(golden: Path) -> None:
    with closing(SqliteStore(golden)) as store:
        runs, journals, effects = read(store)
        assert (runs, journals, effects) == (RUN_STATUSES, JOURNALS, EFFECTS), A_CONTRACT
        assert store.check() == []


def test_the_same_code_writes_the_same_names_keys_and_digests_today(tmp_path: Path) -> None:
    """To the last link of each chain, in which every stored byte of an entry has a part."""
    text = tmp_path / "today.sql"
    subprocess.run([sys.executable, "-m", "tests.upgrade.make_golden", str(text)], check=True, timeout=60)
    rebuild(text.read_text(), tmp_path / "today.db")
    with closing(SqliteStore(tmp_path / "today.db")) as store:
        assert read(store) == (RUN_STATUSES, JOURNALS, EFFECTS), A_CONTRACT


@pytest.mark.parametrize(("table", "opener"), [("runs", open_run), ("effects", open_effect), ("owners", open_owner)])
def test_no_field_of_a_stored_record_is_lost_by_reading_it(golden: Path, table: str, opener: Any) -> None:
    """A renamed field with a default would read as if it had never been written."""
    name = "key" if table == "effects" else "id"
    with closing(sqlite3.connect(golden)) as file:
        rows = file.execute(f"SELECT {name}, record, digest FROM {table}").fetchall()
    assert len(rows) >= (1 if table == "owners" else 3), "processes that ended well have taken their rows along"
    for identity, content, digest in rows:
        assert lost(json.loads(content), json.loads(encode(opener(identity, content, digest)))) == [], A_CONTRACT


def lost(before: Any, after: Any, path: str = "$") -> list[str]:
    """What of a JSON value is not the same in another one, which may hold more fields."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [told for key, value in before.items() for told in lost(value, after.get(key, ...), f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [told for number, (one, other) in pairs for told in lost(one, other, f"{path}[{number}]")]
    return [] if before == after else [f"{path}: {before!r} became {after!r}"]


def test_the_look_at_lost_fields_sees_a_renamed_one() -> None:
    assert lost({"a": [{"b": 1}], "c": 2}, {"a": [{"b": 1, "more": 0}], "d": 2}) == ["$.c: 2 became Ellipsis"]


# --- what becomes of it ---------------------------------------------------------------------------------------------


def test_a_run_that_succeeded_returns_its_result(golden: Path) -> None:
    with surefoot(golden) as sf:
        assert run(sf, "done") == RESULT
    assert agents.SENT == []


def test_its_journal_replays_to_the_same_result_without_a_new_entry(golden: Path) -> None:
    """As if its process had died just before it wrote the end."""
    with closing(SqliteStore(golden)) as store:
        ended = store.find_run("done")
    assert ended is not None
    open_again = replace(ended, status=RunStatus.RUNNING, result=b"", length=0, head=b"")
    with closing(sqlite3.connect(golden)) as file, file:
        row = (open_again.status, *sealed(open_again), "done")
        file.execute("UPDATE runs SET status = ?, record = ?, digest = ? WHERE id = ?", row)
    with surefoot(golden) as sf:
        assert run(sf, "done") == RESULT, A_CONTRACT
        assert read(sf.store) == (RUN_STATUSES, JOURNALS, EFFECTS), A_CONTRACT
        again = sf.store.find_run("done") or pytest.fail("it is gone")
        assert (again.length, again.head, again.result) == (ended.length, ended.head, ended.result)
    assert agents.SENT == []


def test_an_effect_in_doubt_goes_out_again_under_the_recorded_key(golden: Path) -> None:
    with surefoot(golden) as sf:
        assert run(sf, "unfinished") == {"notes": "notes on o-1", "paid": {"order": "o-1", "amount": 40}}
        (effect,) = sf.store.find_effects(run_id="unfinished")
        assert (effect.status, effect.attempts, effect.first_sent_at) == (Status.CONFIRMED, 2, GOLDEN_AT)
        record, entries = sf.store.read_run("unfinished") or pytest.fail("it is gone")
        assert record.fence == 2 and "owner died" in record.claims[-1].why
        assert [(entry.kind, entry.slot) for entry in entries] == [
            *((1, "read"), (3, "charge")),
            *((5, "fence:1.claim"), (4, "charge")),
        ]
    assert agents.SENT == [("charge", CHARGE_KEY)], A_CONTRACT


def test_two_days_later_the_key_protects_no_longer_and_a_person_is_asked(golden: Path) -> None:
    with surefoot(golden, later=2 * 86400) as sf:
        with pytest.raises(RunWaiting, match="no longer protects"):
            run(sf, "unfinished")
        assert [effect.key for effect in sf.store.find_effects([Status.PARKED], run_id="unfinished")] == [
            "73c09142a14ab760e73a41f929c41876"
        ]
    assert agents.SENT == []


def test_a_parked_effect_still_waits_and_a_decision_lets_its_run_end(golden: Path) -> None:
    with surefoot(golden) as sf:
        with pytest.raises(RunWaiting, match=r"surefoot resolve parked bf20b6edef76"):
            run(sf, "parked")
        (parked,) = sf.store.find_effects([Status.PARKED])
        said = Evidence(at=GOLDEN_AT + 61, kind="decision", found=Do.HAPPENED, who="ann", text="in the log")
        event = Event(do=Do.HAPPENED, at=GOLDEN_AT + 61, receipt=b'{"id":"m-1"}', reason="in the log", evidence=said)
        (answer,) = sf.store.transact([DecideEffect(key=parked.key, event=event, stamp=1)])
        assert answer.verdict is Verdict.DONE
        assert run(sf, "parked") == {"notes": "notes on ada", "mail": {"id": "m-1"}}
        record, entries = sf.store.read_run("parked") or pytest.fail("it is gone")
        assert record.status is RunStatus.SUCCEEDED and [entry.kind for entry in entries] == [1, 3, 4]
    assert agents.SENT == []


# --- its owners are of another boot ---------------------------------------------------------------------------------


@contextmanager
def owner_seems_present(db: Path) -> Iterator[None]:
    """Somebody holds the mark of the unfinished run's owner: presence says that it lives."""
    with closing(SqliteStore(db)) as store:
        owner = (store.find_run("unfinished") or pytest.fail("it is gone")).owner
    folder = db.with_name(db.name + "-owners")
    folder.mkdir()
    mark = os.open(folder / str(owner), os.O_RDWR | os.O_CREAT)
    fcntl.flock(mark, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(mark)


def test_a_lease_of_another_boot_means_nothing_even_if_its_end_is_ahead(golden: Path) -> None:
    with owner_seems_present(golden), surefoot(golden) as sf:
        record = sf.store.find_run("unfinished") or pytest.fail("it is gone")
        owner = sf.store.read_owner(record.owner) or pytest.fail("it is gone")
        assert owner.boot == GOLDEN_BOOT and owner.lease_until > sf.engine.clock.lease_now() + 3600
        assert run(sf, "unfinished", when_running="refuse")["paid"] == {"order": "o-1", "amount": 40}


def test_within_the_same_boot_that_owner_would_have_been_left_alone(golden: Path) -> None:
    """So it is the boot that decided above."""
    with owner_seems_present(golden), surefoot(golden, boot=GOLDEN_BOOT) as sf, pytest.raises(RunBusy, match="golden"):
        run(sf, "unfinished", when_running="refuse")
    assert agents.SENT == []
