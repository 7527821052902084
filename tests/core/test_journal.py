"""The chain that seals a journal, and replay by slot: what code that changed may and may not do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from surefoot.core.errors import Damaged, Diverged
from surefoot.core.ids import slot_of
from surefoot.core.journal import Branch, Draft, Entry, EntryKind, Head, Replay, first_head, seal, verify
from tests.core.support import make_draft, make_journal

STEP, FAILURE, INTENT, OUTCOME, MARK = EntryKind

# --- the chain ---------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
DRAFTS = st.builds(
    Draft,
    st.sampled_from([int(kind) for kind in EntryKind]),
    TEXTS,
    st.binary(min_size=8, max_size=8),
    TEXTS,
    st.binary(max_size=12),
    st.floats(0, 4e9),
    st.integers(1, 9),
)
JOURNALS = st.lists(DRAFTS, min_size=1, max_size=6)
OTHER: dict[str, Any] = {
    "kind": lambda value: value % 5 + 1,
    "slot": lambda value: value + "x",
    "args_digest": lambda value: bytes([value[0] ^ 1]) + value[1:],
    "preview": lambda value: "x" + value,
    "value": lambda value: value + b" ",
    "at": lambda value: value + 0.001 if value < 1e9 else value + 1.0,
    "attempts": lambda value: value + 1,
    "digest": lambda value: value[:-1] + bytes([value[-1] ^ 0x80]),
}


@given(JOURNALS)
def test_a_journal_that_nobody_touched_is_verified(drafts: list[Draft]) -> None:
    entries = make_journal("r", *drafts)
    assert verify("r", entries) == Head(len(entries), entries[-1].digest)
    assert verify("r", []) == first_head("r")


@given(JOURNALS, st.data())
def test_any_changed_field_of_any_entry_is_damage_that_names_the_entry(
    drafts: list[Draft], data: st.DataObject
) -> None:
    entries = make_journal("r", *drafts)
    index = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(st.sampled_from(sorted(OTHER)))
    entries[index] = replace(entries[index], **{field: OTHER[field](getattr(entries[index], field))})
    with pytest.raises(Damaged, match=f"entry {index} ") as caught:
        verify("r", entries)
    assert "run 'r'" in caught.value.where


@given(JOURNALS, st.data())
def test_a_missing_entry_is_damage_that_names_it(drafts: list[Draft], data: st.DataObject) -> None:
    entries = make_journal("r", *drafts)
    index = data.draw(st.integers(0, len(entries) - 1))
    del entries[index]
    if index == len(entries):
        assert verify("r", entries).length == len(drafts) - 1, "the run's own seal notices a journal cut short"
        return
    with pytest.raises(Damaged, match=f"entry {index} is missing"):
        verify("r", entries)


@given(JOURNALS, st.data())
def test_a_duplicated_entry_is_damage(drafts: list[Draft], data: st.DataObject) -> None:
    entries = make_journal("r", *drafts)
    index = data.draw(st.integers(0, len(entries) - 1))
    entries.insert(index, entries[index])
    with pytest.raises(Damaged, match=f"entry {index + 1} is missing"):
        verify("r", entries)


@given(JOURNALS.filter(lambda drafts: len(drafts) > 1), st.data())
def test_two_entries_that_changed_places_are_damage(drafts: list[Draft], data: st.DataObject) -> None:
    entries = make_journal("r", *drafts)
    one, two = sorted(data.draw(st.permutations(range(len(entries))))[:2])
    entries[one], entries[two] = entries[two], entries[one]
    with pytest.raises(Damaged, match=f"entry {one} is missing"):
        verify("r", entries)
    renumbered = [replace(entry, seq=seq) for seq, entry in enumerate(entries)]
    with pytest.raises(Damaged, match=f"entry {one} "):
        verify("r", renumbered)


@given(JOURNALS, st.data())
def test_an_entry_of_another_run_is_damage_even_at_the_same_place(drafts: list[Draft], data: st.DataObject) -> None:
    ours, theirs = make_journal("r", *drafts), make_journal("s", *drafts)
    index = data.draw(st.integers(0, len(ours) - 1))
    ours[index] = theirs[index]
    with pytest.raises(Damaged, match=f"entry {index} "):
        verify("r", ours)


def test_bytes_that_moved_from_one_field_to_the_next_are_damage() -> None:
    [entry] = make_journal("r", make_draft("now", MARK, b"12345678-rest"))
    with pytest.raises(Damaged):
        verify("r", [replace(entry, args_digest=entry.value[:8], value=entry.value[8:])])


def test_the_chain_is_the_one_of_the_first_release() -> None:
    drafts = [
        Draft(int(STEP), "assess", b"12345678", '"acme"', b'{"ok":true}', 1_700_000_000.1234),
        Draft(int(INTENT), "0.1/öffnen#2", b"12345678", "", b"k" * 32, 1_700_000_001.0, 3),
    ]
    assert [entry.digest.hex() for entry in make_journal("r-1", *drafts)] == GOLDEN_CHAIN
    assert first_head("r-1").digest.hex() == GOLDEN_SEED


GOLDEN_SEED = "7fda1d31770f713cb38600d4"
GOLDEN_CHAIN = ["978666dbd58d1b8cfc1648eb", "eb50957d9f228e4686b42d86"]


def test_an_entry_keeps_whole_milliseconds_so_that_every_store_gives_the_same_instant_back() -> None:
    entry, head = seal(first_head("r"), make_draft("a", at=1_700_000_000.12349))
    assert entry.at == 1_700_000_000.123
    assert (entry.seq, head) == (0, Head(1, entry.digest))


# --- replay ------------------------------------------------------------------------------------------------------


def replay_of(*drafts: Draft, tentative: tuple[tuple[int, int], ...] = ()) -> Replay:
    return Replay("r", make_journal("r", *drafts), tentative)


def take(replay: Replay, name: str, *former: str, branch: Branch | None = None, family: str = "step") -> Entry | None:
    return replay.take(branch or replay.root, (name, *former), b"", "", family)[1]


def value(entry: Entry | None) -> bytes | None:
    return None if entry is None else entry.value


def recorded(*names: str) -> Replay:
    return replay_of(*(make_draft(name, value=name.encode()) for name in names))


def test_recorded_entries_are_handed_out_once_each_in_any_order() -> None:
    replay = recorded("a", "b", "c")
    assert [value(take(replay, name)) for name in "cab"] == [b"c", b"a", b"b"]
    assert [take(replay, name) for name in "abc"] == [None, None, None]


def test_the_same_name_is_told_apart_by_how_often_it_was_asked_for() -> None:
    replay = replay_of(make_draft("a", value=b"0"), make_draft("a#1", value=b"1"), make_draft("a#2", value=b"2"))
    assert [value(take(replay, "a")) for _ in range(4)] == [b"0", b"1", b"2", None]
    assert replay.take(replay.root, ("a",), b"", "", "step")[0] == "a#4"


def test_an_inserted_step_runs_live_and_the_recorded_ones_are_still_read() -> None:
    replay = recorded("a", "b")
    assert [value(take(replay, name)) for name in ("a", "new", "b")] == [b"a", None, b"b"]
    replay.may_send(replay.root, "effect mail()")


def test_a_removed_step_stops_the_next_effect_and_shows_both_sides() -> None:
    replay = recorded("a", "gone", "b")
    take(replay, "a")
    take(replay, "b")
    with pytest.raises(Diverged) as caught:
        replay.may_send(replay.root, "effect mail(to)")
    assert caught.value.recorded == ("step gone()  [entry 1]",)
    assert caught.value.asked == "effect mail(to)"


def test_a_renamed_step_diverges_unless_it_says_what_it_was_called() -> None:
    replay = recorded("old")
    assert take(replay, "new") is None
    with pytest.raises(Diverged):
        replay.may_send(replay.root, "effect mail()")
    replay = recorded("old")
    assert value(take(replay, "new", "older", "old")) == b"old"
    replay.may_send(replay.root, "effect mail()")


def test_a_renamed_step_finds_its_later_uses_under_the_former_name_too() -> None:
    replay = replay_of(make_draft("old", value=b"0"), make_draft("new#1", value=b"1"), make_draft("old#2", value=b"2"))
    assert [value(take(replay, "new", "old")) for _ in range(3)] == [b"0", b"1", b"2"]


def test_other_arguments_diverge_and_show_what_was_recorded() -> None:
    replay = replay_of(make_draft("a", args_digest=b"old", preview='"who":"acme"'))
    with pytest.raises(Diverged, match="other arguments") as caught:
        replay.take(replay.root, ("a",), b"new", '"who":"bolt"', "step")
    assert caught.value.recorded == ('step a("who":"acme")  [entry 0]',)
    assert caught.value.asked == 'step a("who":"bolt")'


@pytest.mark.parametrize(
    ("kind", "family"),
    [(STEP, "effect"), (FAILURE, "mark"), (INTENT, "step"), (OUTCOME, "mark"), (MARK, "effect"), (MARK, "step")],
)
def test_a_step_that_became_an_effect_diverges(kind: EntryKind, family: str) -> None:
    with pytest.raises(Diverged, match="another kind"):
        take(replay_of(make_draft("a", kind)), "a", family=family)


@pytest.mark.parametrize("kinds", [(STEP, FAILURE), (INTENT, OUTCOME)])
def test_an_entry_of_the_same_family_is_the_same_thing(kinds: tuple[EntryKind, EntryKind]) -> None:
    family = "step" if STEP in kinds else "effect"
    for kind in kinds:
        assert take(replay_of(make_draft("a", kind)), "a", family=family) is not None


def test_an_intent_and_its_outcome_are_one_entry_to_read_and_the_outcome_is_what_is_read() -> None:
    replay = replay_of(make_draft("mail", INTENT), make_draft("a"), make_draft("mail", OUTCOME, b"out"))
    assert [entry.kind for entry in replay.unread()] == [STEP, OUTCOME]
    assert value(take(replay, "mail", family="effect")) == b"out"
    take(replay, "a")
    replay.may_send(replay.root, "effect next()")
    assert not replay.is_behind(replay.root)


def test_unread_entries_come_in_the_order_in_which_they_were_recorded() -> None:
    replay = replay_of(make_draft("b"), make_draft("mail", INTENT), make_draft("a"), make_draft("mail", OUTCOME))
    assert [(entry.seq, entry.slot) for entry in replay.unread()] == [(0, "b"), (2, "a"), (3, "mail")]


def test_children_get_their_path_by_the_order_of_creation() -> None:
    replay = recorded("0/a")
    first, second = replay.open_child(replay.root), replay.open_child(replay.root)
    inner = replay.open_child(second)
    assert [first.path, second.path, inner.path] == ["0", "1", "1.0"]
    assert value(take(replay, "a", branch=first)) == b"0/a"
    assert replay.opened("1.0") is inner
    assert replay.opened("7").path == "7"


def test_places_order_by_the_code_and_a_child_stands_where_it_was_opened() -> None:
    replay = recorded()
    root = replay.root
    before = root.next_place()
    child = replay.open_child(root)
    after = root.next_place()
    inside = [child.next_place(), child.next_place()]
    assert [before, *inside, after] == sorted([after, before, *inside])


def test_unread_entries_of_one_branch_do_not_stop_the_effects_of_another() -> None:
    replay = recorded("0/gone", "1/a")
    first, second = replay.open_child(replay.root), replay.open_child(replay.root)
    take(replay, "a", branch=second)
    replay.may_send(second, "effect mail()")
    replay.may_send(replay.root, "effect mail()")
    with pytest.raises(Diverged):
        replay.may_send(first, "effect mail()")
    assert [replay.is_behind(branch) for branch in (replay.root, first, second)] == [False, True, False]


def test_a_child_that_was_never_opened_stops_only_the_branch_whose_child_it_is() -> None:
    replay = recorded("0/a", "0.0.2/deep", "1/b")
    assert replay.is_behind(replay.root), "all of it may still be ahead of the root"
    first = replay.open_child(replay.root)
    second = replay.open_child(replay.root)
    take(replay, "a", branch=first)
    take(replay, "b", branch=second)
    replay.may_send(replay.root, "effect mail()")
    replay.may_send(second, "effect mail()")
    with pytest.raises(Diverged) as caught:
        replay.may_send(first, "effect mail()")
    assert caught.value.recorded == ("step 0.0.2/deep()  [entry 1]",)


def test_a_run_without_a_record_may_send_and_opens_branches_at_no_cost() -> None:
    replay = replay_of()
    child = replay.open_child(replay.root)
    replay.may_send(child, "effect mail()")
    assert not replay.is_behind(child)
    assert replay.take(child, ("a",), b"", "", "step") == ("0/a", None)


def test_steps_of_a_diverged_attempt_may_be_read_and_need_not_be() -> None:
    drafts = [make_draft("a"), make_draft("wrong", value=b"w"), make_draft("mark", MARK), make_draft("b")]
    replay = replay_of(*drafts, tentative=((1, 3),))
    take(replay, "a")
    take(replay, "b")
    replay.may_send(replay.root, "effect mail()")
    assert not replay.is_behind(replay.root)
    assert value(take(replay, "wrong")) == b"w"
    replay.may_send(replay.root, "effect mail()")


def test_effects_of_a_diverged_attempt_must_be_read() -> None:
    replay = replay_of(make_draft("mail", INTENT), make_draft("mail", OUTCOME), tentative=((0, 2),))
    with pytest.raises(Diverged):
        replay.may_send(replay.root, "effect other()")


@pytest.mark.parametrize(("seq", "optional"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_tentative_range_holds_its_first_entry_and_not_its_end(seq: int, optional: bool) -> None:
    replay = recorded("e0", "e1", "e2", "e3")
    replay = Replay("r", replay.unread(), ((1, 3),))
    for other in {0, 1, 2, 3} - {seq}:
        take(replay, f"e{other}")
    assert replay.is_behind(replay.root) is not optional


def test_is_recorded_looks_at_the_next_use_and_at_former_names() -> None:
    replay = replay_of(make_draft("a"), make_draft("old#1"))
    root = replay.root
    assert replay.is_recorded(root, "a") and not replay.is_recorded(root, "b")
    assert not replay.is_recorded(root, "a2", "old")
    take(replay, "a", "old")
    assert replay.is_recorded(root, "a", "old") and not replay.is_recorded(root, "a")
    take(replay, "a", "old")
    assert not replay.is_recorded(root, "a", "old")


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=12), st.data())
def test_any_finishing_order_of_the_branches_reads_every_entry(
    uses: list[tuple[int, str]], data: st.DataObject
) -> None:
    counts: dict[tuple[int, str], int] = {}
    drafts = []
    for use in uses:
        drafts.append(make_draft(slot_of(str(use[0]), use[1], counts.get(use, 0)), value=repr(use).encode()))
        counts[use] = counts.get(use, 0) + 1
    replay = replay_of(*data.draw(st.permutations(drafts)))
    branches = [replay.open_child(replay.root) for _ in range(4)]
    for use in data.draw(st.permutations(uses)):
        assert value(take(replay, use[1], branch=branches[use[0]])) == repr(use).encode()
    assert replay.unread() == []
    for branch in (replay.root, *branches):
        replay.may_send(branch, "effect mail()")
