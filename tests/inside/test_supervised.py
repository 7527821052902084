"""A plain script under a supervisor, really killed in the gap; the same rows as those of the engines.

What the engines themselves do is measured by `make test-engines`, and is not repeated here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import surefoot
from engines.world import Seen, Try, perform
from surefoot.inside import Done, Parked
from surefoot.inside.script import Exit, code_of, ride
from tests.inside.support import calls, decide, fails, pays, pays_async


def tried(folder: Path, arm: str, row: str) -> Seen:
    this = Try(engine="", program="with_script.py", place={}, arm=arm, row=row, order=f"{arm}-{row}", db="surefoot.db")
    seen = perform(this, folder)
    if row != "control":
        assert seen.kills == 1 and seen.lives.ends[0] == -9
    return seen


def test_as_published_the_gap_charges_twice(tmp_path: Path) -> None:
    seen = tried(tmp_path, "published", "gap")
    assert seen.right and seen.counts == "2/2/1" and seen.calls == 6


@pytest.mark.parametrize(("arm", "row", "calls"), [("keyed", "gap", 4), ("lookup", "gap", 4), ("keyed", "model", 5)])
def test_inside_every_operation_happens_once(tmp_path: Path, arm: str, row: str, calls: int) -> None:
    seen = tried(tmp_path, arm, row)
    assert seen.once and seen.calls == calls


def test_inside_an_opaque_charge_is_parked_and_a_person_ends_it(tmp_path: Path) -> None:
    seen = tried(tmp_path, "opaque", "gap")
    assert seen.lives.ends == [-9, Exit.AGAIN, Exit.DONE]
    assert seen.at_park == {"reserve": 1, "charge": 1}
    assert seen.parked and seen.once and seen.calls == 4


# --- exit codes -------------------------------------------------------------------------------------------------------


def test_the_exit_code_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls.clear()
    got: list[str] = []
    with surefoot.Surefoot(tmp_path / "a.db") as sf:
        assert ride(sf, pays, "7", id="order-7", done=got.append) is Exit.AGAIN
        assert "surefoot resolve order-7" in capsys.readouterr().err
        assert ride(sf, pays, "8", id="order-7") is Exit.LOOK
        assert "other arguments" in capsys.readouterr().err
        decide(sf, "order-7", "receipt:1")
        assert ride(sf, pays, "7", id="order-7", done=got.append) is Exit.DONE and got == ["receipt:1"]
        assert ride(sf, fails, id="bad") is Exit.FAILED
        assert ride(sf, pays_async, "9", id="order-9") is Exit.AGAIN


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Done(None), Exit.DONE),
        (Parked(run="r", reason=""), Exit.AGAIN),
        (surefoot.CommitUnknown("?"), Exit.AGAIN),
        (surefoot.StoreRefused("no"), Exit.AGAIN),
        (surefoot.RunBusy("r", "process 1"), Exit.AGAIN),
        (surefoot.Diverged("r", "changed", (), ""), Exit.LOOK),
        (surefoot.Damaged("entry 3", "digest"), Exit.LOOK),
        (surefoot.UsageError("no"), Exit.LOOK),
        (surefoot.RunCancelled("r"), Exit.FAILED),
        (ValueError("no"), Exit.FAILED),
    ],
)
def test_every_end_has_its_code(end: Done | Parked | BaseException, code: Exit) -> None:
    assert code_of(end) is code
