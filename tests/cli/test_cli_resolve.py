from __future__ import annotations

import getpass
import json
import os
import pwd
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from surefoot import Abandoned, RunWaiting, Surefoot
from surefoot.core.effect import Effect
from tests.cli import agents
from tests.cli.conftest import PROGRAM, Command

WHY = ("--why", "looked in the pager's own log")
Child = Callable[..., "subprocess.Popen[str]"]


def effect_of(db: str, key: str) -> Effect:
    with Surefoot(db) as sf:
        found = sf.store.read_effect(key)
    assert found is not None
    return found


def resume(db: str, run_id: str = "onboard-acme") -> Any:
    with Surefoot(db) as sf:
        return sf.run(agents.onboard, "acme", id=run_id)


def test_happened_gives_the_run_the_receipt_and_sends_nothing(db: str, parked: str, program: Command) -> None:
    ran = program("resolve", "onboard-acme", parked[:12], "--happened", '{"id": "from the log"}', *WHY, "--who", "amy")
    assert (ran.code, ran.err) == (0, "")
    assert "is now confirmed" in ran.out and "run 'onboard-acme' again" in ran.out
    assert resume(db) == {"page": {"id": "from the log"}}
    assert agents.sent == ["page acme"]
    (decision,) = [e for e in effect_of(db, parked).evidence if e.kind == "decision"]
    assert (decision.found, decision.who, decision.text) == ("happened", "amy", WHY[1])
    assert json.loads(decision.value) == {"id": "from the log"} and decision.at > 0


def test_did_not_happen_sends_it_again_exactly_once(db: str, parked: str, program: Command) -> None:
    ran = program("resolve", "onboard-acme", "page", "--did-not-happen", *WHY, "--json")
    assert ran.code == 0 and ran.json["effect"]["status"] == "intended"
    assert resume(db) == {"page": {"id": "acme"}}
    assert agents.sent == ["page acme", "page acme"]


def test_abandon_raises_abandoned_in_the_run_and_never_sends_again(db: str, parked: str, program: Command) -> None:
    ran = program("resolve", "onboard-acme", "page", "--abandon", *WHY, "--json")
    assert ran.code == 0 and ran.json["effect"]["status"] == "abandoned"
    with pytest.raises(Abandoned, match="looked in the pager"):
        resume(db)
    assert agents.sent == ["page acme"]


def test_who_is_the_user_of_the_operating_system(db: str, parked: str, program: Command) -> None:
    program("resolve", "onboard-acme", "page", "--abandon", *WHY, LOGNAME="mallory", USER="mallory")
    assert effect_of(db, parked).evidence[-1].who == pwd.getpwuid(os.getuid()).pw_name


def test_a_user_without_a_name_is_still_somebody(parked: str, cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(getpass, "getuser", nobody)
    ran = cli("resolve", "onboard-acme", "page", "--abandon", *WHY, "--json")
    assert ran.json["effect"]["evidence"][-1]["who"] == "unknown"


@pytest.mark.parametrize("length", [4, 12, 32])
def test_a_prefix_of_the_key_names_the_effect(length: int, parked: str, cli: Command) -> None:
    assert cli("resolve", "onboard-acme", parked[:length].upper(), "--abandon", *WHY).code == 0


def test_three_hex_digits_are_not_enough_and_what_exists_is_listed(parked: str, cli: Command) -> None:
    ran = cli("resolve", "onboard-acme", parked[:3], "--abandon", *WHY, "--json")
    assert ran.code == 4 and parked[:12] in ran.error and "page" in ran.error


def test_an_ambiguous_name_is_refused_and_lists_its_effects(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        for answer in ("--happened", None):
            with pytest.raises(RunWaiting):
                sf.run(agents.twice, "x", id="two")
            if answer:
                assert cli("resolve", "two", "page", "--happened", "null", *WHY).code == 0
        first, second = (e.key for e in reversed(sf.store.find_effects(run_id="two")))
    for wanted in ("page", "0"):
        ran = cli("resolve", "two", wanted, "--abandon", *WHY, "--json")
        assert ran.code == (2 if wanted == "page" else 4)
        assert first[:12] in ran.error and second[:12] in ran.error and "page#1" in ran.error
    assert effect_of(db, second).status == "parked"
    assert cli("resolve", "two", "page#1", "--happened", '{"id": 2}', *WHY).code == 0
    with Surefoot(db) as sf:
        assert sf.run(agents.twice, "x", id="two") == [None, {"id": 2}]
    assert agents.sent == ["page x 1", "page x 2"]


def test_an_effect_that_is_not_parked_is_refused_with_its_status_and_who_decided(parked: str, cli: Command) -> None:
    assert cli("resolve", "onboard-acme", "page", "--happened", "null", *WHY, "--who", "amy").code == 0
    ran = cli("resolve", "onboard-acme", "page", "--abandon", "--why", "too late", "--json")
    assert ran.code == 6
    assert "is confirmed, not parked" in ran.error and "amy" in ran.error and WHY[1] in ran.error


def test_an_effect_whose_sender_died_is_not_for_a_person_to_decide(child: Child, cli: Command) -> None:
    child("effect", "kill", "dead").wait()
    ran = cli("resolve", "dead", "deadly", "--abandon", *WHY, "--json")
    assert ran.code == 6 and "is attempted, not parked" in ran.error


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "exactly one"),
        (("--abandon", "--did-not-happen"), "exactly one"),
        (("--abandon", "--happened", "null"), "exactly one"),
        (("--happened", "{id: 7}"), "as JSON"),
        (("--happened", ""), "as JSON"),
        (("--happened", "NaN"), "as JSON"),
        (("--happened", "[" * 100_000), "as JSON"),
        (("--happened", '"\\ud800"'), "as JSON"),
        (("--happened", "null", "--why", " "), "--why is empty"),
        (("--happened", "null", "--why", "x" * 5000), "5,000 characters"),
        (("--happened", "null", "--why", "\udcff"), "encoding"),
        (("--abandon", "--who", " "), "--who is empty"),
    ],
)
def test_a_decision_that_makes_no_sense_changes_nothing(
    options: tuple[str, ...], told: str, db: str, parked: str, cli: Command
) -> None:
    why = () if "--why" in options else WHY
    ran = cli("resolve", "onboard-acme", "page", *options, *why, "--json")
    assert ran.code == 2 and told in ran.error
    assert effect_of(db, parked).status == "parked"


def test_a_decision_needs_a_reason(parked: str, cli: Command) -> None:
    ran = cli("resolve", "onboard-acme", "page", "--abandon", "--json")
    assert ran.code == 2 and "--why" in ran.error


def test_no_such_run_and_no_such_effect_are_not_found(parked: str, cli: Command) -> None:
    ran = cli("resolve", "nobody", "page", "--abandon", *WHY, "--json")
    assert ran.code == 4 and "no run 'nobody'" in ran.error
    ran = cli("resolve", "onboard-acme", "pager", "--abandon", *WHY, "--json")
    assert ran.code == 4 and "no effect 'pager'" in ran.error and parked[:12] in ran.error
    ran = cli("resolve", "-", "page", "--abandon", *WHY, "--json")
    assert ran.code == 4 and "outside any run" in ran.error


@pytest.mark.parametrize("by_key", [True, False])
def test_an_effect_outside_a_run_is_resolved_under_a_dash(by_key: bool, db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            agents.alarm("bob")
        (effect,) = sf.store.find_effects()
        wanted = effect.key[:8] if by_key else "alarm"
        ran = cli("resolve", "-", wanted, "--happened", '"rang"', *WHY)
        assert ran.code == 0 and "call it again" in ran.out
        assert agents.alarm("bob") == "rang"


def test_an_effect_that_another_run_holds_is_found_through_the_run_that_waits_for_it(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        for name in ("first", "second"):
            with pytest.raises(RunWaiting) as waiting:
                sf.run(agents.shared, "bob", id=name)
        assert "surefoot resolve second " in waiting.value.reason
        key = waiting.value.reason.split("surefoot resolve second ")[1].split()[0]
        assert cli("resolve", "second", key, "--happened", '"rang"', *WHY).code == 0
        assert [sf.run(agents.shared, "bob", id=name) for name in ("first", "second")] == ["rang", "rang"]


def test_a_large_receipt_is_stored_once_as_a_blob_and_comes_back(db: str, parked: str, cli: Command) -> None:
    receipt = {"log": "x" * 100_000}
    ran = cli("resolve", "onboard-acme", "page", "--happened", json.dumps(receipt), *WHY, "--json")
    assert ran.code == 0 and ran.json["effect"]["receipt"] == receipt
    stored = effect_of(db, parked)
    assert stored.receipt[:1] == b"\0" and len(stored.receipt) == 33 and stored.evidence[-1].value == stored.receipt
    assert resume(db) == {"page": receipt}


@pytest.mark.parametrize("run_id", ["--abandon", "a b; touch pwned", "$(touch pwned)", "it's"])
def test_the_command_that_doubts_prints_can_be_pasted(run_id: str, db: str, program: Command) -> None:
    with Surefoot(db) as sf, pytest.raises(RunWaiting):
        sf.run(agents.onboard, "acme", id=run_id)
    ran = program("doubts", "--db", db, "--json")
    (doubt,) = ran.json["doubts"]
    (pasted,) = [command for command in doubt["effect"]["resolve"] if "--happened" in command]
    pasted = pasted.replace("JSON", "null").replace("TEXT", "pasted").replace("surefoot ", f"{PROGRAM} ", 1)
    assert subprocess.run(["sh", "-c", pasted], cwd=os.path.dirname(db), timeout=60).returncode == 0
    assert not os.path.exists(os.path.join(os.path.dirname(db), "pwned"))
    assert resume(db, run_id) == {"page": None}


def test_two_people_cannot_both_decide(db: str, parked: str, program: Command) -> None:
    command = [str(PROGRAM), "resolve", "--db", db, "onboard-acme", "page", *WHY]
    answers = (["--happened", "null"], ["--abandon"], ["--did-not-happen"])
    racing = [subprocess.Popen([*command, *answer], stderr=subprocess.DEVNULL) for answer in answers]
    assert sorted(process.wait(60) for process in racing) == [0, 6, 6]
    assert len([e for e in effect_of(db, parked).evidence if e.kind == "decision"]) == 1
