"""`surefoot approvals`, `approve` and `deny`, as a person and as a script use them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot import Denied, Surefoot
from surefoot.cli import main
from tests.approvals.support import Bystander, pay, sent

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def db(tmp_path: Path) -> str:
    return str(tmp_path / "agents.db")


@pytest.fixture
def cli(db: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("SUREFOOT_DB", db)
    monkeypatch.setenv("COLUMNS", "80")

    def ask(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return ask


def while_it_asks(db: str, clock: Bystander, act: Callable[[str, str], object]) -> Any:
    """Run `pay` on a file, and act while it asks, with the id and digest that it shows."""
    with Surefoot(db, clock=clock) as sf:
        clock.acts = [lambda: act(sf.approvals()[0].id, sf.approvals()[0].digest)]
        return sf.run(pay, "ch_1", 10, 10, id="r")


@pytest.fixture
def clock() -> Bystander:
    """It tells what the machine's clock tells, since the commands read that one."""
    clock = Bystander()
    from surefoot.runtime.clock import SystemClock

    clock.time = SystemClock().now()
    return clock


def test_a_person_lists_looks_and_approves(cli: Cli, db: str, clock: Bystander) -> None:
    def person(approval: str, digest: str) -> None:
        code, listed, _ = cli("approvals")
        assert code == 0 and all(
            text in listed for text in (approval, "pending", "cfo", 'refund({"amount":10,"charge":"ch_1"})')
        )
        code, shown, _ = cli("approvals", "show", approval[:4])
        assert code == 0 and digest in shown and '"amount": 10' in shown and "to send refund with" in shown
        code, said, _ = cli("approve", approval, "--as", "ann", "--why", "looks right", "--digest", digest)
        assert code == 0 and "is now approved, by ann" in said and digest in said
        code, _, why = cli("deny", approval, "--why", "no")
        assert code == 6 and "ann has approved it already" in why
        assert cli("approvals")[1] == "nothing is asked for\n"

    assert while_it_asks(db, clock, person) == 10
    assert len(sent) == 1


def test_a_script_gets_json(cli: Cli, db: str, clock: Bystander) -> None:
    def script(approval: str, digest: str) -> None:
        (row,) = json.loads(cli("approvals", "--json")[1])["approvals"]
        assert (row["id"], row["digest"], row["status"], row["by"]) == (approval, digest, "pending", "cfo")
        assert json.loads(cli("--json", "approvals", "show", approval)[1])["artifact"] == {
            "amount": 10,
            "charge": "ch_1",
        }
        document = json.loads(cli("deny", approval, "--why", "too much", "--as", "bob", "--json")[1])
        assert (document["approval"]["status"], document["approval"]["who"]) == ("denied", "bob")

    with pytest.raises(Denied, match="by bob: too much"):
        while_it_asks(db, clock, script)


def test_what_cannot_be_decided_has_its_exit_code(cli: Cli, db: str, clock: Bystander) -> None:
    def wrong(approval: str, digest: str) -> None:
        code, _, why = cli("approve", "zzzzzz")
        assert code == 4 and f"nearest: {approval}" in why
        code, _, why = cli("approve", approval, "--digest", "0" * 32)
        assert code == 6 and f"{digest} is asked for now" in why
        code, _, why = cli("approve", approval, "--digest", "")
        assert code == 2 and "that of the artifact which was shown" in why
        code, _, why = cli("deny", approval)
        assert code == 2 and "needs its reason" in why
        code, _, why = cli("approve", approval, "--as", "a\x1bb")
        assert code == 2 and "control character" in why
        code, _, why = cli("approvals", "show", "zzzzzz", "--json")
        assert code == 4 and json.loads(why)["code"] == 4
        assert cli("approve", approval)[0] == 0

    assert while_it_asks(db, clock, wrong) == 10


def test_a_waiting_run_is_shown_with_the_way_out(cli: Cli, db: str, clock: Bystander) -> None:
    def look(approval: str, digest: str) -> None:
        code, found, _ = cli("doctor")
        assert code in (0, 1) and f"approve {approval}" in " ".join(found.split()), found
        assert cli("approve", approval)[0] == 0

    assert while_it_asks(db, clock, look) == 10
