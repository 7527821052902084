from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from surefoot import Damaged, Diverged, RunCancelled, RunWaiting, Surefoot
from surefoot.cli.desk import without_password
from tests.cli import agents
from tests.cli.conftest import Command
from tests.cli.test_cli_show import flip_a_byte

Child = Callable[..., "subprocess.Popen[str]"]


def finding(cli: Command, run_id: str) -> dict[str, Any]:
    checkup = cli("doctor", "--json").json
    assert set(checkup) == {"runs", "effects", "damage", "attention", "schedules"}
    (found,) = [each for each in checkup["runs"] if each["run"]["id"] == run_id]
    assert set(found) == {"run", "why", "since", "owner", "attention", "next"}
    assert time.time() - 60 < found["since"] <= time.time()
    return found


def test_a_store_where_all_is_finished_needs_nothing(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        sf.run(agents.review, "acme", "body", id="reviewed")
    ran = cli("doctor")
    assert (ran.code, ran.out) == (0, "nothing needs attention\n")
    nothing = {"runs": [], "effects": [], "damage": [], "attention": False, "schedules": []}
    assert cli("doctor", "--json").json == nothing


def test_a_waiting_run_names_its_effect_and_how_to_decide_it(parked: str, cli: Command) -> None:
    found = finding(cli, "onboard-acme")
    assert found["attention"] and "is in doubt" in found["why"] and f"decide page {parked[:12]}" in found["next"]
    (effect,) = cli("doctor", "--json").json["effects"]
    assert set(effect) == {"effect", "since", "owner", "attention", "next"} and effect["attention"]
    ran = cli("doctor")
    assert ran.code == 1 and f"surefoot resolve onboard-acme {parked[:12]} --did-not-happen --why TEXT" in ran.out
    assert "2 of 2 need attention" in ran.out


def test_a_waiting_run_whose_doubt_is_decided_only_has_to_be_run_again(parked: str, cli: Command) -> None:
    cli("resolve", "onboard-acme", "page", "--happened", "null", "--why", "seen")
    found = finding(cli, "onboard-acme")
    assert found["attention"] and found["next"] == "run it again with the same id: what it waited for is decided"


def test_a_run_whose_process_was_killed_says_so_and_resumes_at_once(db: str, child: Child, program: Command) -> None:
    dead = child("step", "kill", "killed")
    assert dead.wait() == -signal.SIGKILL
    found = finding(program, "killed")
    assert found["attention"] and found["why"] == "its process died"
    assert found["owner"].startswith(f"process {dead.pid} on ")
    assert found["next"] == "run it again with the same id: it resumes at once"
    assert program("doctor").code == 1
    begun = time.monotonic()
    with Surefoot(db) as sf, pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents.hang, "function", lambda how: how)
        patch.setattr(agents.deadly, "function", lambda attempt, how: how)
        assert sf.run(agents.hanger, "kill", id="killed") == "kill"
    assert time.monotonic() - begun < 5
    assert program("doctor").code == 0


def test_a_run_killed_while_sending_also_lists_its_effect(child: Child, cli: Command) -> None:
    assert child("effect", "kill", "killed").wait() == -signal.SIGKILL
    assert finding(cli, "killed")["why"] == "its process died"
    (effect,) = cli("doctor", "--json").json["effects"]
    assert effect["effect"]["status"] == "attempted" and effect["attention"]
    assert "when run 'killed' is run again: the same request is sent under the same key" in effect["next"]


def test_a_run_whose_process_hangs_past_its_lease_is_found(child: Child, cli: Command) -> None:
    process = child("step", "hang", "frozen", lease=0.3)
    assert finding(cli, "frozen")["attention"] is False
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    found = finding(cli, "frozen")
    assert found["attention"] and "its lease is over" in found["why"]


def test_a_live_run_and_its_effect_need_nothing(child: Child, cli: Command) -> None:
    process = child("effect", "hang", "alive")
    found = finding(cli, "alive")
    assert found["attention"] is False and found["why"] == f"{found['owner']} is running it"
    assert found["owner"].startswith(f"process {process.pid} on ")
    ran = cli("doctor", "--json")
    assert ran.code == 0 and ran.json["effects"][0]["attention"] is False
    assert "nothing needs attention" in cli("doctor").out


def test_a_live_run_that_was_cancelled_stops_by_itself(child: Child, cli: Command) -> None:
    child("step", "hang", "alive")
    ran = cli("cancel", "alive", "--reason", "wrong partner", "--json")
    assert ran.code == 0 and "was asked" in ran.json["next"] and ran.json["run"]["cancel_requested"]
    found = finding(cli, "alive")
    assert found["attention"] is False and "cancel requested" in found["why"]
    assert "cancel requested" in cli("runs").out


def test_a_released_run_is_pending_and_goes_on_where_it_was(db: str, cli: Command) -> None:
    with Surefoot(db) as sf, pytest.raises(KeyboardInterrupt):
        sf.run(agents.hanger, "interrupt", id="released")
    found = finding(cli, "released")
    assert found["run"]["status"] == "pending" and "KeyboardInterrupt" in found["why"]
    assert found["next"] == "run it again with the same id: it goes on where it was"


def test_a_diverged_run_points_at_both_sides(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(agents.changing, "acme", id="changed")
        agents.edited.append("since")
        with pytest.raises(Diverged):
            sf.run(agents.changing, "acme", id="changed")
    found = finding(cli, "changed")
    assert found["run"]["status"] == "diverged" and "the code asks for" in found["why"]
    assert found["next"] == "compare both sides: surefoot show changed --diverged"


@pytest.mark.parametrize("noticed", [True, False])
def test_damage_is_found_even_before_a_run_trips_over_it(noticed: bool, db: str, parked: str, cli: Command) -> None:
    flip_a_byte(db)
    if noticed:
        with Surefoot(db) as sf, pytest.raises(Damaged):
            sf.run(agents.onboard, "acme", id="onboard-acme")
    found = finding(cli, "onboard-acme")
    assert found["run"]["status"] == ("damaged" if noticed else "waiting")
    assert found["attention"] and "entry 0 (assess)" in found["why"] and "restore" in found["next"]


def test_a_cancelled_run_with_a_parked_effect_has_to_be_decided_first(db: str, parked: str, cli: Command) -> None:
    ran = cli("cancel", "onboard-acme", "--json")
    assert ran.code == 0 and ran.json["run"]["status"] == "pending" and "left effects open" in ran.json["next"]
    found = finding(cli, "onboard-acme")
    assert "cancel requested" in found["why"] and f"decide page {parked[:12]}" in found["next"]
    cli("resolve", "onboard-acme", "page", "--happened", "null", "--why", "seen")
    assert "once more" in finding(cli, "onboard-acme")["next"]


def test_a_cancelled_run_ends_when_its_effect_is_decided(db: str, parked: str, cli: Command) -> None:
    cli("cancel", "onboard-acme")
    cli("resolve", "onboard-acme", "page", "--happened", "null", "--why", "seen")
    with Surefoot(db) as sf, pytest.raises(RunCancelled):
        sf.run(agents.onboard, "acme", id="onboard-acme")
    assert cli("doctor").code == 0


def test_cancel_ends_a_run_that_nobody_works_on(db: str, cli: Command) -> None:
    with Surefoot(db) as sf, pytest.raises(KeyboardInterrupt):
        sf.run(agents.hanger, "interrupt", id="released")
    ran = cli("cancel", "released", "--json")
    assert ran.code == 0 and set(ran.json) == {"run", "next"} and ran.json["run"]["status"] == "cancelled"
    assert cli("cancel", "released").code == 0
    assert cli("doctor").code == 0


def test_cancel_of_what_has_ended_or_never_was_is_refused(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        sf.run(agents.review, "acme", "body", id="done")
    ran = cli("cancel", "done", "--json")
    assert ran.code == 6 and "had ended already (succeeded)" in ran.error
    ran = cli("cancel", "done", "--compensate", "--json")
    assert ran.code == 6 and "run 'done' has succeeded; its effects are not undone any more" in ran.error
    ran = cli("cancel", "nobody", "--json")
    assert ran.code == 4 and "no run 'nobody'" in ran.error
    assert cli("cancel", "done", "--reason", "a\x1bb", "--json").code == 2


def test_a_damaged_record_does_not_hide_the_others(db: str, child: Child, parked: str, cli: Command) -> None:
    child("step", "kill", "killed").wait()
    with sqlite3.connect(db) as raw:
        changed = "CAST(replace(CAST(record AS TEXT), 'onboard', 'inboard') AS BLOB)"
        change = f"UPDATE runs SET record = {changed} WHERE id = 'onboard-acme'"
        assert raw.execute(change).rowcount == 1
    raw.close()
    ran = cli("doctor", "--json")
    assert ran.code == 1 and "onboard-acme" in ran.json["damage"][0]
    assert [each["run"]["id"] for each in ran.json["runs"]] == ["killed"]
    assert cli("runs", "--json").code == 5 and cli("show", "onboard-acme", "--json").code == 5
    assert "! damage" in cli("doctor").out


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://ann:s3cret@db:5432/agents", "postgresql://ann@db:5432/agents"),
        (
            "postgresql://ann:s3cret@one,two/agents?surefoot_schema=s",
            "postgresql://ann@one,two/agents?surefoot_schema=s",
        ),
        ("postgresql://ann@db/agents", "postgresql://ann@db/agents"),
        ("postgresql://db/agents?password=s3cret&user=ann", "postgresql://db/agents?user=ann"),
        ("agents.db", "agents.db"),
        ("odd@name:1.db", "odd@name:1.db"),
    ],
)
def test_no_command_that_is_shown_holds_a_password(given: str, shown: str) -> None:
    assert without_password(given) == shown
