"""A twin keeps its receiver's contract and breaks it on demand."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surefoot import UsageError
from surefoot.testing.ledger import performed, read_ledger
from surefoot.testing.twins import Behaviour, Fault, InFlight, Late, Sort, Twin

from .twin_calls import KEY, OTHER_KEY, SECRETS, WINDOW, Got, behave, call, send, twins

# --- the classes ----------------------------------------------------------------------------------------------------

REPEATED = {
    # sort: (a repeat inside the window, after it) as (status, code, acts so far)
    Sort.KEY_REPLAY: ((201, "", 1), (201, "", 2)),
    Sort.KEY_REJECT_WITH_POINTER: ((409, "already_made", 1), (201, "", 2)),
    Sort.KEY_REJECT: ((400, "key_spent", 1), (201, "", 2)),
    Sort.NATURAL_KEY: ((409, "already_exists", 1), (409, "already_exists", 1)),
    Sort.UPSERT: ((201, "", 1), (201, "", 1)),
    Sort.CONDITIONAL: ((409, "already_exists", 1), (409, "already_exists", 1)),
    Sort.STATE_KEY: ((201, "", 1), (201, "", 2)),
    Sort.SILENT_DROP_WINDOW: ((201, "", 1), (201, "", 2)),
    Sort.HEURISTIC_WINDOW: ((409, "already_made", 1), (201, "", 2)),
    Sort.SESSION_SCOPED: ((201, "", 1), (201, "", 2)),
    Sort.LOOKUP_ONLY: ((201, "", 2), (201, "", 3)),
    Sort.LOOKUP_BY_EVENT: ((201, "", 2), (201, "", 3)),
    Sort.NONE: ((201, "", 2), (201, "", 3)),
}


@twins(*(behave(sort) for sort in REPEATED))
def test_a_repeat_meets_what_its_class_says_inside_the_window_and_after_it(twin: Twin) -> None:
    sort = twin.behaviour.operations["create"]
    session = {"X-Session": "s1"}
    first = send(twin, {"name": "a", "text": "hello"}, key=KEY, **session)
    assert first.status == 201 and first.body["number"] == 1
    for passes, (status, code, acts) in zip((WINDOW - 5, 10.0), REPEATED[sort], strict=True):
        twin.advance(passes)
        again = send(twin, {"name": "a", "text": "hello"}, key=KEY, **session)
        assert (again.status, again.code if code else "") == (status, code)
        assert len(twin.acts("a")) == acts == performed(twin.lines())["a"]


@twins(*(behave(sort) for sort in REPEATED if sort not in (Sort.HEURISTIC_WINDOW, Sort.NATURAL_KEY)))
def test_another_key_is_another_act(twin: Twin) -> None:
    send(twin, {"name": "a", "text": "hello"}, key=KEY)
    send(twin, {"name": "a", "text": "hello"}, key=OTHER_KEY)
    assert len(twin.acts("a")) == 2


@twins(behave(Sort.KEY_REJECT_WITH_POINTER))
def test_a_refusal_with_a_pointer_names_what_the_first_request_made(twin: Twin) -> None:
    made = send(twin, {"text": "hello"}, key=KEY).body["id"]
    refusal = send(twin, {"text": "something else"}, key=KEY).body["error"]
    assert refusal["made"] == made
    assert call(twin.port, "GET", f"/create/{made}").body["found"][0]["text"] == "hello"


@twins(behave(Sort.NATURAL_KEY), behave(Sort.STATE_KEY))
def test_what_is_finished_frees_its_key(twin: Twin) -> None:
    send(twin, {"name": "a"}, key=KEY)
    twin.finish(KEY)
    assert send(twin, {"name": "a"}, key=KEY).body["number"] == 2
    shown = [call(twin.port, "GET", f"/create/{KEY}{query}").body["found"] for query in ("", "?closed=1")]
    assert [len(found) for found in shown] == [1, 2]


@twins(behave(Sort.UPSERT))
def test_an_upsert_with_other_content_writes_the_record_again(twin: Twin) -> None:
    send(twin, {"name": "a", "text": "one"}, key=KEY)
    send(twin, {"name": "a", "text": "two"}, key=KEY)
    assert [json.loads(act.body)["text"] for act in twin.acts("a")] == ["one", "two"]
    (record,) = call(twin.port, "GET", f"/create/{KEY}").body["found"]
    assert record["text"] == "two" and record["number"] == 1


@twins(behave(Sort.SESSION_SCOPED))
def test_another_session_knows_nothing_of_the_first_ones_keys(twin: Twin) -> None:
    for session in ("s1", "s1", "s2", ""):
        send(twin, {"name": "a"}, key=KEY, **{"X-Session": session})
    assert len(twin.acts("a")) == 3


@twins(behave(Sort.MONOTONIC_SEQUENCE))
def test_only_a_number_above_the_producers_last_one_acts(twin: Twin) -> None:
    for producer, number in (("p", "5"), ("p", "5"), ("p", "4"), ("p", "9"), ("q", "4")):
        assert send(twin, {"name": "a", "marker": producer}, key=number).status == 201
    assert [act.key for act in twin.acts("a")] == ["5", "9", "4"]


@twins(behave(Sort.TWO_STEP_COMMIT))
def test_a_draft_is_committed_once_and_preparing_is_no_act(twin: Twin) -> None:
    draft = send(twin, {"name": "a"}).body
    assert draft["draft"] and not twin.acts()
    assert send(twin, {"name": "a"}, key=draft["id"]).status == 201
    assert send(twin, {"name": "a"}, key=draft["id"]).code == "already_exists"
    assert send(twin, {"name": "a"}, key="create_99").code == "already_exists"
    assert len(twin.acts("a")) == 1


@twins(*(behave(sort) for sort in SECRETS))
def test_a_secret_is_spent_shared_or_kept_as_its_class_says(twin: Twin) -> None:
    sort, secret = twin.behaviour.operations["create"], twin.issue()
    first, again = (send(twin, {"name": "a"}, key=secret) for _ in range(2))
    assert first.status == again.status == 201 and len(twin.acts("a")) == 1
    assert first.body == again.body and ("refresh_token" in first.body) == (sort is not Sort.REUSABLE_SECRET)
    twin.advance(WINDOW + 1)
    assert send(twin, {"name": "a"}, key=secret).code == "key_spent"
    assert send(twin, {"name": "a"}, key="never issued").code == "key_spent"


@twins(replace(behave(Sort.SINGLE_USE_SECRET), late=Late.FAMILY_REVOKED))
def test_reuse_of_a_spent_secret_revokes_its_family(twin: Twin) -> None:
    secret = twin.issue()
    successor = send(twin, {}, key=secret).body["refresh_token"]
    twin.advance(WINDOW + 1)
    assert send(twin, {}, key=secret).code == "key_spent"
    assert send(twin, {}, key=successor).code == "key_spent", "the successor outlived the reuse"


@twins(behave(Sort.SINGLE_USE_SECRET))
def test_the_grace_ends_when_the_successor_is_used(twin: Twin) -> None:
    secret = twin.issue()
    successor = send(twin, {}, key=secret).body["refresh_token"]
    assert send(twin, {}, key=successor).status == 201
    assert send(twin, {}, key=secret).code == "key_spent"


def test_a_mixed_receiver_has_a_class_for_each_operation(tmp_path: Path) -> None:
    operations = {"append": Sort.NONE, "update": Sort.UPSERT}
    with Twin(Behaviour(name="sheet", operations=operations), tmp_path / "l") as twin:
        for path in ("/append", "/append", "/update", "/update"):
            send(twin, {"name": path}, key=KEY, path=path)
        assert performed(twin.lines()) == {"/append": 2, "/update": 1}


# --- what classes share ---------------------------------------------------------------------------------------------


@twins(replace(behave(), late=Late.REJECTED))
def test_a_late_repeat_is_told_apart_where_the_receiver_says_so(twin: Twin) -> None:
    send(twin, {"name": "a"}, key=KEY)
    twin.advance(WINDOW + 1)
    assert send(twin, {"name": "a"}, key=KEY).code == "key_expired" and len(twin.acts()) == 1


@twins(replace(behave(), compares_payload=True))
def test_a_known_key_with_other_content_is_refused_where_it_is_compared(twin: Twin) -> None:
    send(twin, {"name": "a", "text": "one"}, key=KEY)
    assert send(twin, {"name": "a", "text": "two"}, key=KEY).code == "changed_payload"


@twins(replace(behave(), replay_marker=("Idempotent-Replayed", "true")))
def test_a_replay_carries_its_marker_and_a_first_answer_does_not(twin: Twin) -> None:
    first, again = (send(twin, {"name": "a"}, key=KEY) for _ in range(2))
    assert "Idempotent-Replayed" not in first.headers and again.headers["Idempotent-Replayed"] == "true"
    assert first.body == again.body


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.ERROR_DURING, Fault.ERROR_AFTER])
def test_a_stored_error_comes_again_and_one_that_is_not_stored_does_not(
    tmp_path: Path, fault: Fault, stores: bool
) -> None:
    behaviour = replace(behave(), stores_refusals=stores, stores_errors=stores)
    with Twin(behaviour, tmp_path / "ledger.jsonl") as twin:
        twin.next(fault)
        first, again = (send(twin, {"name": "a"}, key=KEY) for _ in range(2))
        assert first.status == (422 if fault is Fault.REFUSED else 500)
        assert again.status == (first.status if stores else 201)
        assert len(twin.acts("a")) == (fault is Fault.ERROR_AFTER or not stores)


@pytest.mark.parametrize("meets", list(InFlight))
def test_a_second_request_meets_the_first_one_in_flight(tmp_path: Path, meets: InFlight) -> None:
    got: list[Got] = []
    with Twin(replace(behave(), in_flight=meets), tmp_path / "ledger.jsonl") as twin:
        twin.next("hold")
        threads = [threading.Thread(target=lambda: got.append(send(twin, {"name": "a"}, key=KEY))) for _ in range(2)]
        threads[0].start()
        twin.wait_for("held")
        threads[1].start()
        twin.wait_for("arrived", 2)
        if meets is not InFlight.HOLD:
            threads[1].join(20)
        assert twin.release() == 1
        for thread in threads:
            thread.join(20)
        assert sorted(one.status for one in got) == ([201, 409] if meets is InFlight.REJECT else [201, 201])
        assert len(twin.acts("a")) == (2 if meets is InFlight.BOTH else 1)


# --- faults ---------------------------------------------------------------------------------------------------------

FAULTS = {
    # fault: (what the caller gets, acts)
    Fault.NONE: ("201", 1),
    Fault.LOST_REQUEST: ("TimeoutError", 0),
    Fault.LOST_ANSWER: ("TimeoutError", 1),
    Fault.RESET: ("ConnectionResetError", 1),
    Fault.ERROR_BEFORE: ("500", 0),
    Fault.ERROR_DURING: ("500", 0),
    Fault.ERROR_AFTER: ("500", 1),
    Fault.UNREADABLE: ("JSONDecodeError", 1),
    Fault.DOUBLE: ("201", 2),
    Fault.REFUSED: ("422", 0),
    Fault.BUSY: ("503", 0),
    Fault.LIMITED: ("429", 0),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_met_once_and_acts_as_it_says(tmp_path: Path, fault: Fault) -> None:
    with Twin(behave(Sort.NONE), tmp_path / "ledger.jsonl") as twin:
        twin.next(fault)
        try:
            got = str(send(twin, {"name": "a"}, timeout=0.3).status)
        except (OSError, ValueError) as error:
            got = type(error).__name__
        assert (got, len(twin.acts("a"))) == FAULTS[fault]
        assert send(twin, {"name": "b"}).status == 201, "the fault was met twice"


def test_every_fault_is_tried_here() -> None:
    assert set(FAULTS) | {Fault.LATE, Fault.HOLD} == set(Fault)


def test_a_late_request_acts_when_it_is_released_though_nobody_waits(twin: Twin) -> None:
    twin.next("late")
    with pytest.raises(TimeoutError):
        send(twin, {"name": "a"}, key=KEY, timeout=0.2)
    assert not twin.acts() and twin.release() == 1 and len(twin.acts("a")) == 1
    assert send(twin, {"name": "a"}, key=KEY).body["number"] == 1 and len(twin.acts("a")) == 1


def test_what_is_held_when_the_twin_closes_never_acts(tmp_path: Path) -> None:
    errors: list[str] = []

    def ask() -> None:
        try:
            send(twin, {"name": "a"}, key=KEY)
        except (OSError, http.client.HTTPException) as error:
            errors.append(type(error).__name__)

    with Twin(behave(), tmp_path / "ledger.jsonl") as twin:
        twin.next("hold")
        thread = threading.Thread(target=ask)
        thread.start()
        twin.wait_for("held")
    thread.join(20)
    assert errors and [line.what for line in read_ledger(tmp_path / "ledger.jsonl")] == ["arrived"]


def test_a_delivery_that_comes_twice_is_one_act_where_a_key_protects(twin: Twin) -> None:
    twin.next("double")
    send(twin, {"name": "a"}, key=KEY)
    assert [line.what for line in twin.lines()] == ["arrived", "performed", "arrived", "repeated"]


# --- lookups and events ---------------------------------------------------------------------------------------------


@twins(replace(behave(Sort.LOOKUP_ONLY), lag_seconds=30.0))
def test_a_lookup_shows_after_its_lag_and_an_index_that_hides_never(twin: Twin) -> None:
    made = send(twin, {"name": "a", "marker": "m1"}).body["id"]

    def found(value: str) -> int:
        return len(call(twin.port, "GET", f"/create/{value}").body["found"])

    assert (found("m1"), found(made)) == (0, 1), "an id is no matter of an index"
    twin.advance(31.0)
    assert (found("m1"), found("a"), found("m2")) == (1, 1, 0)
    twin.hide()
    assert found("m1") == 0
    assert len(twin.lines("looked_up")) == 6


@twins(behave(Sort.LOOKUP_ONLY))
def test_a_lookup_fails_when_it_is_told_to(twin: Twin) -> None:
    twin.next("error_before", "limited", lookups=True)
    assert [call(twin.port, "GET", "/create/m").status for _ in range(3)] == [500, 429, 200]
    with pytest.raises(UsageError, match="a lookup cannot meet double"):
        twin.next("double", lookups=True)


@twins(replace(behave(Sort.LOOKUP_BY_EVENT), lag_seconds=30.0, shows=False))
def test_what_only_an_event_tells_cannot_be_asked(twin: Twin) -> None:
    send(twin, {"name": "a", "marker": "m1"})
    got = call(twin.port, "GET", "/create/m1")
    assert got.status == 404 and "acme cannot be asked about create" in got.body["error"]["message"]
    assert not twin.events()
    twin.advance(31.0)
    assert [thing.request.marker for thing in twin.events()] == ["m1"]


# --- bad requests ---------------------------------------------------------------------------------------------------


@twins(replace(behave(), shape="uuid4", key_required=True))
def test_a_key_that_does_not_fit_is_refused_with_what_was_expected(twin: Twin) -> None:
    for key, why in (
        ("order-17", "Idempotency-Key must be a UUID of version 4, found 'order-17'"),
        ("0e8d1f4c-1b0f-5c3a-9d52-7f6f3a2b1c00", "must be a UUID of version 4"),
        ("", "Idempotency-Key is missing"),
        ("x" * 300, "must have 1 to 255 characters, found 300"),
    ):
        got = send(twin, {"name": "a"}, key=key)
        assert got.status == 400 and got.code == "malformed_key"
        assert "acme, create: " in got.body["error"]["message"] and why in got.body["error"]["message"]
    assert not twin.acts() and len(twin.lines("refused")) == 4


@twins(replace(behave(), quoted=True))
def test_a_key_that_has_to_be_quoted_is_refused_bare(twin: Twin) -> None:
    assert send(twin, {}, key=KEY).code == "malformed_key"
    assert send(twin, {}, key=f'"{KEY}"').status == 201 and twin.acts()[0].key == KEY


def test_an_operation_that_does_not_exist_is_refused_with_those_that_do(twin: Twin) -> None:
    got = send(twin, {}, path="/charge")
    assert got.status == 404 and got.body["error"]["message"] == "acme has no operation 'charge'; it has create"
    got = call(twin.port, "GET", "/charge/x")
    assert got.status == 404 and "it has create" in got.body["error"]["message"]
    assert call(twin.port, "DELETE", "/create").status == 404
    assert call(twin.port, "GET", "/create").status == 404
    assert send(twin, [1, 2]).status == 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operations": {}}, "needs an operation"),
        ({"shape": "roman"}, "unknown key shape 'roman'; expected one of any, uuid"),
        ({"window_seconds": -1.0}, "window_seconds of 'acme' must be 0 or more"),
        ({"lag_seconds": float("nan")}, "lag_seconds of 'acme' must be 0 or more"),
        ({"operations": {"create": Sort.MIXED}}, "say the class of 'create'"),
    ],
)
def test_a_behaviour_that_nobody_can_have_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(behave(), **change)


def test_the_handle_refuses_what_the_twin_does_not_know(twin: Twin) -> None:
    with pytest.raises(UsageError, match="knows no fault 'flood'; it knows none, lost_request"):
        twin.next("flood")
    with pytest.raises(UsageError, match="nothing was made under 'x'"):
        twin.finish("x")
    with pytest.raises(UsageError, match="acme issues no secrets"):
        twin.issue()
    with pytest.raises(TimeoutError, match="expected 3 x 'arrived'"):
        twin.wait_for("arrived", 3, timeout=0.01)
