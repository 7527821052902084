"""How a receiver is found or described: `get`, `search`, `names`, `define`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from datetime import date
from typing import Any, cast

import msgspec

from ..core.errors import UsageError
from ..core.ids import check_id
from .load import load
from .load import names as names
from .model import Receiver

OLD_AFTER_DAYS = 365
_warned: set[str] = set()


class OldFact(UserWarning):
    """A receiver's facts were last checked more than a year ago."""


def get(name: str, *, now: float | None = None) -> Receiver:
    """The receiver of that id. Warns once a process with `OldFact` when it was last checked over a year ago.

    `now` is in seconds since the epoch, else the machine's clock. UsageError names the nearest ids when there is none.
    """
    receiver = load(check_id(name, "the name of a receiver"))
    if name not in _warned and (days := age_days(receiver, _now() if now is None else now)) > OLD_AFTER_DAYS:
        _warned.add(name)
        warnings.warn(
            f"receiver {name!r} was last checked on {receiver.checked}, {days} days ago; read its sources again "
            f"(`surefoot receivers show {name}`) and say what you found with .with_(checked=...)",
            OldFact,
            stacklevel=2,
        )
    return receiver


def age_days(receiver: Receiver, now: float) -> int:
    """How many days ago it was checked; 0 for one that a user defined without a date."""
    if not receiver.checked:
        return 0
    return (date(1970, 1, 1) - date.fromisoformat(receiver.checked)).days + int(now // 86400)


def _now() -> float:
    from ..runtime.clock import SystemClock

    return SystemClock().now()


def search(words: str) -> list[Receiver]:
    """The receivers that hold every one of the words, those that have them in their name first."""
    wanted = words.casefold().split()
    if not wanted:
        raise UsageError('receivers.search() needs words, such as "mail" or "refund"; receivers.names() lists all')
    found: list[tuple[int, str, Receiver]] = []
    for name in names():
        receiver = load(name)
        title = f"{receiver.id} {receiver.name} {receiver.category}".casefold()
        text = " ".join(_texts(msgspec.to_builtins(receiver))).casefold()
        if all(word in text for word in wanted):
            found.append((sum(word not in title for word in wanted), name, receiver))
    return [receiver for _, _, receiver in sorted(found, key=lambda entry: entry[:2])]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for part in cast("Iterable[Any]", value.values() if isinstance(value, dict) else value):
            yield from _texts(part)
    else:
        yield str(value)


def define(id: str, **facts: Any) -> Receiver:
    """A receiver of your own, from the same fields as the catalog's: `define("acme", class_="key_replay", ...)`.

    Texts and dicts are taken for what they stand for. UsageError names the field that is unknown, missing or
    contradicts another one.
    """
    from .narrow import build

    return build(check_id(id, "the id of a receiver"), facts)
