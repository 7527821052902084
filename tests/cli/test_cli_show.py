from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from surefoot import Damaged, Diverged, RunWaiting, Surefoot
from surefoot.cli.draw import draw_runs
from surefoot.cli.page import Page
from surefoot.cli.shapes import RunRow, Runs
from surefoot.cli.timeline import tokens_of
from surefoot.core.run import RunStatus
from tests.cli import agents
from tests.cli.conftest import Command

Child = Callable[..., "subprocess.Popen[str]"]


def test_the_timeline_tells_the_run_in_order_with_tokens(parked: str, cli: Command) -> None:
    shown = cli("show", "onboard-acme", "--json").json
    assert [m["kind"] for m in shown["timeline"]] == ["started", "step", "step", "intent", "status"]
    assert [m["tokens"] for m in shown["timeline"]] == [None, 4400, 5900, None, None]
    assert shown["tokens"] == 10_300
    assert shown["arguments"] == {"partner": "acme"} and shown["result"] is None
    step = shown["timeline"][1]
    assert (step["slot"], step["text"], step["entry"], step["attempts"]) == ("assess", '"partner":"acme"', 0, 1)
    assert shown["timeline"][3]["key"] == parked
    assert [m["at"] for m in shown["timeline"]] == sorted(m["at"] for m in shown["timeline"])
    text = cli("show", "onboard-acme").out
    assert re.search(r'step +assess\("partner":"acme"\) +\[4,400 tokens\]', text)
    assert "tokens     10,300" in text and "waiting" in text and parked[:12] in text
    assert "TimeoutError: the pager did not" in text


def test_the_shapes_of_show_are_stable(parked: str, cli: Command) -> None:
    shown = cli("show", "onboard-acme", "--json").json
    assert set(shown) == {"run", "arguments", "result", "tokens", "timeline", "effects", "diverged", "damage"} | {
        *("budget", "children", "parent", "calls", "usage", "money", "notes"),
    }
    assert set(shown["run"]) == {
        *("id", "workflow", "status", "reason", "created_at", "updated_at", "claims", "cancel_requested"),
    }
    assert set(shown["timeline"][0]) == {
        *("at", "kind", "text", "slot", "entry", "attempts", "tokens", "key", "status", "usage", "money"),
    }
    (effect,) = shown["effects"]
    assert set(effect) == {
        *("key", "name", "identity", "run", "slot", "status", "contract", "attempts", "created_at", "updated_at"),
        *("first_sent_at", "doubted_at", "reason", "request", "receipt", "compensates", "evidence", "explained"),
        "resolve",
    }
    assert set(effect["evidence"][0]) == {"at", "kind", "found", "text", "who", "attempt", "value"}
    assert (effect["status"], effect["contract"], effect["request"]) == ("parked", "opaque", {"who": "acme"})


def test_decisions_and_what_followed_stand_in_the_timeline(db: str, parked: str, cli: Command) -> None:
    cli("resolve", "onboard-acme", "page", "--did-not-happen", "--why", "not in the log", "--who", "amy")
    with Surefoot(db) as sf:
        sf.run(agents.onboard, "acme", id="onboard-acme")
    shown = cli("show", "onboard-acme", "--json").json
    assert [m["kind"] for m in shown["timeline"]][3:] == ["intent", "decision", "resumed", "outcome", "status"]
    decision, resumed, outcome, status = shown["timeline"][4:]
    assert decision["text"] == "did_not_happen (amy: not in the log)" and "fence 2" in resumed["text"]
    assert (outcome["status"], outcome["attempts"], status["status"]) == ("confirmed", 2, "succeeded")
    assert shown["result"] == {"page": {"id": "acme"}} and shown["effects"][0]["receipt"] == {"id": "acme"}
    text = cli("show", "onboard-acme").out
    assert "did_not_happen (amy: not in the log)" in text and "[2 attempts]" in text


def test_a_crash_and_the_takeover_stand_in_the_timeline(
    db: str, child: Child, cli: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = child("step", "kill", "crashed")
    assert dead.wait() == -9
    monkeypatch.setattr(agents.hang, "function", lambda how: how)
    with Surefoot(db) as sf:
        assert sf.run(agents.hanger, "kill", id="crashed") == "kill"
    shown = cli("show", "crashed", "--json").json
    (takeover,) = [m for m in shown["timeline"] if m["kind"] == "takeover"]
    assert (
        takeover["text"].startswith(f"process {dead.pid} on ") and " died; taken over by process " in takeover["text"]
    )
    assert shown["run"]["claims"] == 2
    assert "takeover" in cli("show", "crashed").out


def test_retries_failures_and_recorded_choices_are_shown(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        sf.run(agents.retry, "fine", id="fine")
        with pytest.raises(ValueError, match="not yet"):
            sf.run(agents.retry, "hopeless", id="hopeless")
    mark, step = cli("show", "fine", "--json").json["timeline"][1:3]
    assert (mark["kind"], mark["slot"], mark["text"][:3]) == ("mark", "now", '"20')
    assert (step["kind"], step["attempts"]) == ("step", 2)
    assert "flaky" in cli("show", "fine").out and "[2 attempts]" in cli("show", "fine").out
    failure, ended = cli("show", "hopeless", "--json").json["timeline"][2:4]
    assert (failure["kind"], failure["attempts"]) == ("failure", 2) and failure["text"].endswith("ValueError: not yet")
    assert ended["status"] == "failed" and ended["text"] == "ValueError: not yet"


def test_a_diverged_run_shows_both_sides(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        with pytest.raises(RunWaiting):
            sf.run(agents.changing, "acme", id="changed")
        agents.edited.append("since")
        with pytest.raises(Diverged):
            sf.run(agents.changing, "acme", id="changed")
    assert agents.sent == ["page acme"]
    diverged = cli("show", "changed", "--diverged", "--json").json["diverged"]
    assert any(line.startswith("step draft(") for line in diverged["recorded"])
    assert diverged["asked"].startswith('effect ticket("body":"new","partner":"acme")')
    text = cli("show", "changed", "--diverged").out
    assert re.search(r"^>  +1  step +draft\(", text, re.MULTILINE)
    assert re.search(r"^   +0  step +assess\(", text, re.MULTILINE)
    assert "the code asks for: effect ticket(" in " ".join(text.split())


def test_a_run_that_has_not_diverged_says_so(parked: str, cli: Command) -> None:
    ran = cli("show", "onboard-acme", "--diverged")
    assert ran.code == 0 and "has not diverged: it is waiting" in ran.out
    assert cli("show", "onboard-acme", "--diverged", "--json").json["diverged"] is None


def test_a_damaged_journal_is_named_and_the_rest_is_still_shown(db: str, parked: str, cli: Command) -> None:
    flip_a_byte(db)
    ran = cli("show", "onboard-acme")
    assert ran.code == 5 and "damaged" in ran.err and "entry 0 (assess)" in ran.err
    assert "onboard" in ran.out and parked[:12] in ran.out
    ran = cli("show", "onboard-acme", "--json")
    assert ran.code == 5 and ran.json["damage"] and ran.json["effects"][0]["key"] == parked
    assert ran.err.startswith('{"error": ')
    with Surefoot(db) as sf, pytest.raises(Damaged):
        sf.run(agents.onboard, "acme", id="onboard-acme")


def flip_a_byte(db: str) -> None:
    with sqlite3.connect(db) as raw:
        change = (
            "UPDATE entries SET value = CAST(replace(CAST(value AS TEXT), 'low', 'LOW') AS BLOB) WHERE slot = 'assess'"
        )
        assert raw.execute(change).rowcount == 1
    raw.close()


def test_a_large_result_is_fetched_for_json_and_cut_for_people(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        sf.run(agents.large, 200_000, id="large")
    assert len(cli("show", "large", "--json").json["result"]) == 200_000
    text = cli("show", "large").out
    assert "(200,002 characters)" in text and len(text) < 2000


def test_a_run_that_does_not_exist_is_not_found(parked: str, cli: Command) -> None:
    ran = cli("show", "nobody", "--json")
    assert ran.code == 4 and "no run 'nobody'" in ran.error
    ran = cli("show", "nobody")
    assert (ran.code, ran.out) == (4, "") and ran.err.startswith("surefoot: no run 'nobody'")
    ran = cli("show", "no\x1b[31mbody", "--json")
    assert ran.code == 2 and "control character" in ran.error


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ({"usage": {"total_tokens": 7, "prompt_tokens": 5, "completion_tokens": 2}}, 7),
        ({"usage": {"input_tokens": 5, "output_tokens": 2}}, 7),
        ({"usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 9}}, 9),
        ({"total_tokens": 7}, 7),
        ([0, {"usage": {"total_tokens": 7}}], 7),
        ({"answers": [{"usage": {"total_tokens": 3}}, {"usage": {"total_tokens": 4}}]}, 7),
        ({"usage": {"total_tokens": 0}}, 0),
        ({"usage": {"input_tokens": 5}}, None),
        ({"usage": {"total_tokens": True}}, None),
        ({"usage": {"total_tokens": "7"}}, None),
        ({"usage": "much"}, None),
        ("total_tokens", None),
        (None, None),
    ],
)
def test_tokens_are_read_from_a_model_s_answer(value: Any, tokens: int | None) -> None:
    assert tokens_of(value) == tokens


def test_runs_lists_newest_first_and_by_status(db: str, parked: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        sf.run(agents.review, "acme", "body", id="reviewed")
    listed = cli("runs", "--json").json
    assert set(listed) == {"runs", "more"} and listed["more"] is False
    assert [(r["id"], r["status"]) for r in listed["runs"]] == [("reviewed", "succeeded"), ("onboard-acme", "waiting")]
    assert [r["id"] for r in cli("runs", "--status", "waiting", "--json").json["runs"]] == ["onboard-acme"]
    both = cli("runs", "--status", "waiting", "--status", "succeeded", "--json").json["runs"]
    assert len(both) == 2
    newest = cli("runs", "--limit", "1", "--json").json
    assert [r["id"] for r in newest["runs"]] == ["reviewed"] and newest["more"] is True
    assert "older runs are left out" in cli("runs", "--limit", "1").out
    assert cli("runs", "--status", "failed").out == "no runs\n"
    assert cli("runs", "--status", "nonsense", "--json").code == 2
    assert cli("runs", "--limit", "0", "--json").code == 2


def test_doubts_shows_the_arithmetic_and_the_commands(parked: str, cli: Command) -> None:
    ran = cli("doubts", "--json")
    assert ran.code == 0 and set(ran.json) == {"doubts"}
    (doubt,) = ran.json["doubts"]
    assert set(doubt) == {"effect", "next", "proposals"} and doubt["proposals"] == []
    assert doubt["effect"]["explained"].startswith("parked, opaque; first sent ")
    assert doubt["effect"]["resolve"] == [
        f"surefoot resolve onboard-acme {parked[:12]} {answer} --why TEXT"
        for answer in ("--happened JSON", "--did-not-happen", "--abandon")
    ]
    text = cli("doubts").out
    assert all(command in text for command in doubt["effect"]["resolve"])


def test_doubts_keeps_both_requests_of_a_disagreement(db: str, cli: Command) -> None:
    with Surefoot(db) as sf:
        sf.run(agents.review, "acme", "pay 40", id="first")
        with pytest.raises(Exception, match="held by run 'first'"):
            sf.run(agents.review, "acme", "pay 35", id="second")
    (doubt,) = cli("doubts", "--json").json["doubts"]
    assert [(p["run"], p["request"]["body"]) for p in doubt["proposals"]] == [("first", "pay 40"), ("second", "pay 35")]
    text = cli("doubts").out
    assert "requests disagree" in text and "pay 40" in text and "pay 35" in text
    assert cli("doctor").code == 0


def test_doubts_holds_an_effect_whose_sender_died_and_says_what_follows(child: Child, cli: Command) -> None:
    child("effect", "kill", "dead").wait()
    (doubt,) = cli("doubts", "--json").json["doubts"]
    assert doubt["effect"]["status"] == "attempted" and doubt["effect"]["resolve"] == []
    assert "the same request is sent under the same key" in doubt["next"]


def test_an_effect_that_is_being_sent_right_now_is_no_doubt(child: Child, cli: Command) -> None:
    child("effect", "hang", "alive")
    assert cli("doubts", "--json").json == {"doubts": []}
    assert cli("doubts").out == "no doubts\n"


def test_every_status_has_room_in_the_list_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    row = RunRow(
        id="r", workflow="w", status="", reason="", created_at=0.0, updated_at=0.0, claims=1, cancel_requested=False
    )
    for status in RunStatus:
        draw_runs(Page(), Runs(runs=[replace(row, status=status)], more=False), 5.0)
        assert f"{status}  " in capsys.readouterr().out
