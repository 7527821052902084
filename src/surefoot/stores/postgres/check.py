"""Reads everything once: each record against its digest, each chain to its end, each row through its index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.digest import blob_hash
from ...core.errors import Damaged
from ..records import open_effect, open_owner

if TYPE_CHECKING:
    from .store import PostgresStore

FOUND_MAX = 10
Read = Callable[[str, Any], list[tuple[Any, ...]]]


def check(store: PostgresStore, read: Read) -> list[str]:
    """What does not fit, in words, the first ten; empty when all does."""
    found: list[str] = []
    for problem in _problems(store, read):
        found.append(problem)
        if len(found) == FOUND_MAX:
            break
    return found


def _pages(read: Read, query: str, first: Any) -> Iterator[tuple[Any, ...]]:
    last = first
    while rows := read(query, (last,)):
        yield from rows
        last = rows[-1][0]


def _problems(store: PostgresStore, read: Read) -> Iterator[str]:
    for _, run_id in _pages(read, "page_of_runs", 0):
        yield from _told(lambda: store.read_run(run_id) or _hidden(f"run {run_id!r}"))  # noqa: B023
    for _, key, *row in _pages(read, "page_of_effects", 0):
        yield from _told(lambda: open_effect(key, *row))  # noqa: B023
        yield from _told(lambda: store.read_effect(key) or _hidden(f"effect {key[:12]}"))  # noqa: B023
    for row in _pages(read, "page_of_owners", 0):
        yield from _told(lambda: open_owner(*row))  # noqa: B023
    for name, content in _pages(read, "page_of_blobs", b""):
        if blob_hash(content) != name:
            yield f"large value {name.hex()[:12]}: its bytes do not match its hash"
    strays = read("strays", ())[0][0]
    if strays:
        yield f"{strays} entries belong to no run"


def _hidden(what: str) -> None:
    raise Damaged(what, "an index hides it")


def _told(look: Callable[[], object]) -> Iterator[str]:
    try:
        look()
    except Damaged as error:
        yield str(error)
