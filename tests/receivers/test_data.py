"""The data: every file reads strictly, contradicts nothing, names its sources, and none is missing."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import msgspec
import pytest

from surefoot import UsageError, receivers
from surefoot.core.contract import Meaning
from surefoot.effects.scope import SCOPE_NAMES
from surefoot.receivers import Class, Do, KeyPlace, Level, LookupKind, Receiver
from surefoot.receivers.check import check
from surefoot.receivers.load import FOLDER, decode
from surefoot.receivers.words import CLASSES, DOES, TOKENS
from surefoot.receivers.words import SCOPE_NAMES as SCOPE_NAMES_HERE

ALL = [receivers.get(name) for name in receivers.names()]

PER_CLASS = {
    Class.KEY_REPLAY: 73,
    Class.KEY_REJECT_WITH_POINTER: 5,
    Class.KEY_REJECT: 1,
    Class.NATURAL_KEY: 18,
    Class.UPSERT: 3,
    Class.CONDITIONAL: 5,
    Class.STATE_KEY: 3,
    Class.SILENT_DROP_WINDOW: 6,
    Class.HEURISTIC_WINDOW: 3,
    Class.TWO_STEP_COMMIT: 2,
    Class.MONOTONIC_SEQUENCE: 1,
    Class.SESSION_SCOPED: 1,
    Class.LOOKUP_ONLY: 20,
    Class.LOOKUP_BY_EVENT: 2,
    Class.NONE: 7,
    Class.MIXED: 2,
    Class.SINGLE_USE_SECRET: 9,
    Class.ROTATING_REUSABLE_SECRET: 1,
    Class.REUSABLE_SECRET: 3,
}


def those_that_break(rule: Callable[[Receiver], bool]) -> list[str]:
    return [receiver.id for receiver in ALL if not rule(receiver)]


def test_no_receiver_is_missing() -> None:
    assert len(ALL) == 165
    assert Counter(receiver.class_ for receiver in ALL) == PER_CLASS


def test_a_receiver_lies_in_the_file_of_its_name() -> None:
    assert [receiver.id for receiver in ALL] == list(receivers.names())
    assert {path.name for path in Path(FOLDER).iterdir()} == {f"{name}.toml" for name in receivers.names()}


def test_no_receiver_contradicts_itself_nor_does_one_of_its_operations_or_settings() -> None:
    for receiver in ALL:
        assert check(receiver) is receiver
        for name in receiver.variants:
            check(receiver.with_(operation=name))
        for name in receiver.settings:
            check(receiver.with_(setting=name))


def test_every_receiver_says_where_its_facts_come_from() -> None:
    assert not those_that_break(lambda r: bool(r.sources) and r.level is not Level.DECLARED)
    assert not those_that_break(lambda r: date.fromisoformat(r.checked) <= date(2026, 11, 30))
    assert not those_that_break(lambda r: all(source.ref.strip() == source.ref != "" for source in r.sources))


def test_a_receiver_that_guards_by_a_key_says_where_the_key_goes() -> None:
    keyed = (Class.KEY_REPLAY, Class.KEY_REJECT, Class.KEY_REJECT_WITH_POINTER, Class.STATE_KEY)
    assert not those_that_break(lambda r: r.class_ not in keyed or r.key.place is not KeyPlace.NONE)
    nameless = [r.id for r in ALL if r.key.place is not KeyPlace.NONE and not r.key.name]
    assert nameless == ["onekhusa"]  # no source names its header


def test_a_receiver_survives_its_own_encoding() -> None:
    assert not those_that_break(lambda r: msgspec.json.decode(msgspec.json.encode(r), type=Receiver) == r)


def test_a_limit_is_called_not_processed_only_where_a_source_says_so() -> None:
    named = {r.id for r in ALL for a in r.answers if 429 in a.status and a.means is Meaning.NOT_PROCESSED}
    assert named == {
        "github.issues_comments",
        "github.refs_prs",
        "sendgrid.mail_send",
        "slack.chat_post_message",
        "stripe.v1",
        "twilio.messages",
        "zendesk.tickets",
    }


def test_no_index_and_no_event_is_believed_when_it_shows_nothing() -> None:
    late = (LookupKind.SEARCH, LookupKind.EVENT)
    assert not those_that_break(lambda r: not any(each.absence and each.kind in late for each in r.lookups))


def test_a_fact_that_nobody_reads_is_an_error() -> None:
    content = Path(FOLDER, "stripe.v1.toml").read_bytes()
    for bad in (
        b"tpyo = 1\n" + content,
        content.replace(b'"at_least"', b'"at_lest"'),
        content.replace(b"seconds = 86400", b'seconds = "a day"'),
        content + b"\nwindow = 3\n",
        content + b"\xff",
    ):
        with pytest.raises(UsageError, match=r"stripe\.v1"):
            decode(bad, "stripe.v1")


def test_every_word_has_a_sentence() -> None:
    assert set(CLASSES) == set(Class) and set(DOES) == set(Do)


def test_scopes_have_the_names_that_effects_record() -> None:
    assert SCOPE_NAMES_HERE == SCOPE_NAMES


def test_a_token_is_told_of_by_token_receivers_and_by_no_other() -> None:
    assert {r.id for r in ALL if r.token} == {r.id for r in ALL if r.class_ in TOKENS}
    assert all(r.id.startswith("oauth.") for r in ALL if r.token)


def test_measured_clients_that_repeat_by_themselves_are_named() -> None:
    repeats = {c.package for r in ALL for c in r.clients if max(c.closed, c.reset, c.status_500, c.status_503) > 1}
    assert {"PyGithub", "pyairtable", "boto3", "stripe", "slack_sdk", "jira"} <= repeats
    assert len({(c.package, c.call) for r in ALL for c in r.clients}) == 25


def test_importing_surefoot_does_not_import_the_receivers() -> None:
    code = (
        "import sys, surefoot; assert not [m for m in sys.modules if m.startswith('surefoot.receivers')]\n"
        "from surefoot import receivers; assert 'tomllib' not in sys.modules and 'difflib' not in sys.modules\n"
        "from surefoot.receivers import load\n"
        "receivers.get('stripe.v1'); assert load.load.cache_info().currsize == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_one_receiver_costs_one_small_file() -> None:
    sizes = {path.name: path.stat().st_size for path in Path(FOLDER).iterdir()}
    assert max(sizes.values()) < 12_000, max(sizes, key=lambda name: sizes[name])
