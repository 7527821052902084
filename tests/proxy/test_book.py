"""The rules of slots, attempts and divergence, without a socket or a store."""

from __future__ import annotations

from surefoot.proxy.book import Behind, Book, Miss, Recorded

SCOPE = "@"


def result(seq: int, slot: str) -> Recorded:
    return Recorded(seq, slot, b"", slot)


def test_an_attempt_counts_its_calls_from_the_first() -> None:
    book: Book[str] = Book([result(0, "@/call:a"), result(1, "@/call:a#1")], [])
    for name in ("first", "second"):
        attempt = book.attempt(name)
        found = [book.ask(attempt, SCOPE, "call:a") for _ in range(3)]
        assert found == [result(0, "@/call:a"), result(1, "@/call:a#1"), Miss("@/call:a#2")]
        book.give_back(attempt, "@/call:a#2", failed=False)


def test_the_same_call_at_once_is_one_call_under_way() -> None:
    book: Book[str] = Book([], [])
    one, other = book.attempt("one"), book.attempt("other")
    assert book.ask(one, SCOPE, "call:a") == Miss("@/call:a")
    book.flights["@/call:a"] = "under way"
    assert book.ask(other, SCOPE, "call:a") == "under way"
    assert book.ask(one, SCOPE, "call:a") == Miss("@/call:a#1"), "the same attempt means another call"


def test_a_call_is_not_made_while_recorded_ones_of_its_scope_are_unread() -> None:
    book: Book[str] = Book([result(0, "@/call:a"), result(1, "@/b/call:a")], [])
    attempt = book.attempt("again")
    assert book.ask(attempt, SCOPE, "call:new") == Behind("@/call:new", (result(0, "@/call:a"),))
    assert book.ask(attempt, SCOPE, "call:a") == result(0, "@/call:a")
    assert book.ask(attempt, SCOPE, "call:new") == Miss("@/call:new"), "another scope's calls are its own business"


def test_an_agent_with_a_checkpoint_of_its_own_may_leave_calls_unread() -> None:
    book: Book[str] = Book([result(0, "@/call:a")], [], skips=True)
    assert book.ask(book.attempt("again"), SCOPE, "call:new") == Miss("@/call:new")


def test_a_failed_try_gives_its_place_back() -> None:
    book: Book[str] = Book([], [])
    attempt = book.attempt("one")
    assert book.ask(attempt, SCOPE, "call:a") == Miss("@/call:a")
    book.add_failure(result(0, "@/call:a"))
    book.give_back(attempt, "@/call:a", failed=True)
    assert book.ask(attempt, SCOPE, "call:a") == Miss("@/call:a")


def test_a_failure_is_told_again_if_the_run_went_on_to_something_else_after_it() -> None:
    """As where a backup model answered: on replay the primary fails again, and is not paid."""
    failed, backup = result(0, "@/call:primary"), result(1, "@/call:backup")
    book: Book[str] = Book([backup], [failed])
    attempt = book.attempt("again")
    assert book.ask(attempt, SCOPE, "call:primary") == failed
    assert book.ask(attempt, SCOPE, "call:backup") == backup
    assert book.ask(attempt, SCOPE, "call:primary") == Miss("@/call:primary")


def test_a_failure_that_a_retry_made_good_is_not_told_again() -> None:
    book: Book[str] = Book([result(1, "@/call:a")], [result(0, "@/call:a")])
    assert book.ask(book.attempt("again"), SCOPE, "call:a") == result(1, "@/call:a")


def test_a_failure_at_the_end_of_the_record_is_tried_again() -> None:
    book: Book[str] = Book([result(0, "@/call:a")], [result(1, "@/call:b")])
    attempt = book.attempt("again")
    assert book.ask(attempt, SCOPE, "call:a") == result(0, "@/call:a")
    assert book.ask(attempt, SCOPE, "call:b") == Miss("@/call:b")
