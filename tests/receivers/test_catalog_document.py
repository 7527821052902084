"""The document and the command say what the data says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot import receivers
from surefoot.cli import main
from surefoot.receivers.describe import describe, promise
from surefoot.receivers.document import document

ROOT = Path(__file__).resolve().parents[2]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["receivers", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_document_is_fresh() -> None:
    stored = (ROOT / "docs" / "catalog.md").read_text("utf-8")
    assert stored == document(), "run: python -m surefoot.receivers docs/catalog.md"


def test_the_document_is_made_by_a_command() -> None:
    made = subprocess.run([sys.executable, "-m", "surefoot.receivers"], capture_output=True, timeout=60, check=True)
    assert made.stdout.decode() == document()
    bad = subprocess.run([sys.executable, "-m", "surefoot.receivers", "a", "b"], capture_output=True, timeout=60)
    assert bad.returncode == 2 and b"usage" in bad.stderr


def test_the_document_names_every_receiver_and_every_source() -> None:
    text = document()
    for name in receivers.names():
        assert f"\n### {name}\n" in text
    assert text.count("**known from**") == len(receivers.names())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stripe.v1", "the key is kept at least 1 d; relied on for 12 h"),
        ("aws.sqs.fifo", "relied on for 2.5 min"),
        ("aws.sqs.fifo", "after a restart not at all, since it is under 10 min"),
        ("square.payments", "no window is known, so 0 s of it are relied on"),
        ("pagerduty.events_v2", "protects only while what it names is open, so 0 s"),
        ("azure.repeatability", "for ever: a late repeat is refused"),
        ("slack.chat_post_message", "lag 30 s (no lag is documented for a list); an empty answer proves nothing"),
        ("zendesk.tickets", "2 empty answers, one lag apart, prove that it did not happen"),
        ("aws.dynamodb.conditional_put", "a repeat does no harm"),
        ("oauth.xero", "works for another 30 min; relied on for 15 min"),
        ("oauth.auth0", "is spent by its use and is never sent twice"),
        ("telegram.bot_api", "in doubt a person tells"),
        ("discord.create_message", "sent as base62"),
        ("bvnk", "the bare status is read as a refusal"),
        ("github.issues_comments", "PyGithub 2.10.0 Repository.create_issue sends 11 closed"),
    ],
)
def test_the_arithmetic_is_told_in_plain_words(name: str, said: str) -> None:
    assert any(said in line.text for line in describe(receivers.get(name))), describe(receivers.get(name))


def test_a_promise_fits_on_one_line() -> None:
    assert max(len(promise(receivers.get(name))) for name in receivers.names()) < 70
    accepted = receivers.get("smtp").with_(at_least_once=True)
    assert promise(accepted) == "opaque, sent again"


def test_show_prints_the_contract_its_arithmetic_and_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "stripe.v1")
    assert code == 0
    for part in (
        "keyed",
        "relied on for 12 h",
        "https://docs.stripe.com/api/idempotent_requests",
        "Idempotent-Replayed",
    ):
        assert part in " ".join(out.split())


def test_show_gives_the_facts_and_the_contract_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "gmail.send", "--json")
    shown: Any = json.loads(out)
    assert set(shown["contracts"]) == {"prepare", "commit"} and shown["receiver"]["class"] == "two_step_commit"
    assert shown["age_days"] >= 0 and shown["said"][0]["heading"] == "what it is"


def test_list_is_cut_down_by_class_and_category(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "list", "--category", "oauth", "--class", "reusable_secret", "--json")
    assert [row["id"] for row in json.loads(out)["receivers"]] == ["oauth.google", "oauth.hubspot", "oauth.salesforce"]
    code, out, _ = run(capsys, "list")
    assert code == 0 and len(out.splitlines()) == len(receivers.names()) + 1


def test_search_lists_what_has_every_word(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "search", "zendesk", "ticket")
    assert code == 0 and "zendesk.tickets" in out and "stripe" not in out
    code, out, _ = run(capsys, "search", "nothing", "like", "this")
    assert code == 0 and "define" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["show", "stripe"], 4, "the nearest are stripe.v1"),
        (["list", "--class", "magic"], 2, "expected one of key_replay"),
        (["list", "--category", "magic"], 2, "expected one of payments"),
    ],
)
def test_bad_words_are_told_with_a_way_out(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "") and said in err
    found, out, err = run(capsys, *arguments, "--json")
    assert json.loads(err)["code"] == code
