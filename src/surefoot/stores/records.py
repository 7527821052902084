"""Records to rows and back: JSON with a digest, strictly decoded. A row that does not fit its digest is damage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from ..core.digest import digest
from ..core.dispatch import Queue
from ..core.effect import Effect
from ..core.errors import Damaged
from ..core.journal import Entry
from ..core.lease import Owner
from ..core.mail import Mail
from ..core.run import Run
from ..core.schedule import Schedule

encode = msgspec.json.encode
_decode_run = msgspec.json.Decoder(Run).decode
_decode_effect = msgspec.json.Decoder(Effect).decode
_decode_owner = msgspec.json.Decoder(Owner).decode


@functools.cache
def _decoder(kind: type) -> Callable[[bytes], Any]:
    """Of a record that most programs never read: making one takes long."""
    return msgspec.json.Decoder(kind).decode


def sealed(record: msgspec.Struct) -> tuple[bytearray, bytearray]:
    """(content, digest) of a record; bytearrays, since sqlite3 binds those without looking for an adapter."""
    content = encode(record)
    return bytearray(content), bytearray(digest(content))


def _open(decode: Callable[[bytes], Any], what: str, content: bytes, sealed_as: bytes) -> Any:
    if not isinstance(cast("Any", content), bytes) or digest(content) != sealed_as:
        raise Damaged(what, "its bytes do not match its digest")
    try:
        return decode(content)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(what, f"it cannot be decoded ({error})") from None


def open_entries(rows: Iterable[Any]) -> list[Entry]:
    """The entries of rows, one by one: ten thousand rows at once would set the garbage collector to work."""
    return [Entry(r[0], r[1], r[2], r[3], r[4], r[5], r[6] / 1000, r[7], r[8]) for r in rows]


def open_run(run_id: str, content: bytes, sealed_as: bytes, status: str | None = None) -> Run:
    """The run of a row; Damaged if the row was changed."""
    run: Run = _open(_decode_run, f"the record of run {run_id!r}", content, sealed_as)
    if run.id != run_id or (status is not None and run.status != status):
        raise Damaged(f"the row of run {run_id!r}", "its columns do not match its record")
    return run


def open_effect(key: str, content: bytes, sealed_as: bytes, status: str | None = None) -> Effect:
    """The effect of a row; Damaged if the row was changed."""
    effect: Effect = _open(_decode_effect, f"the record of effect {key[:12]}", content, sealed_as)
    if (key and effect.key != key) or (status is not None and effect.status != status):
        raise Damaged(f"the row of effect {key[:12]}", "its columns do not match its record")
    return effect


def open_owner(owner_id: int, content: bytes, sealed_as: bytes) -> Owner:
    """The owner of a row; Damaged if the row was changed."""
    owner: Owner = _open(_decode_owner, f"the record of owner {owner_id}", content, sealed_as)
    if owner.id != owner_id:
        raise Damaged(f"the row of owner {owner_id}", "its columns do not match its record")
    return owner


def open_queue(content: bytes, sealed_as: bytes) -> Queue:
    """The queue of a row; Damaged if the row was changed."""
    return _open(_decoder(Queue), "the record of a queue", content, sealed_as)


def open_schedule(name: str, content: bytes, sealed_as: bytes) -> Schedule:
    """The schedule of a row; Damaged if the row was changed."""
    schedule: Schedule = _open(_decoder(Schedule), f"the record of schedule {name!r}", content, sealed_as)
    if schedule.name != name:
        raise Damaged(f"the row of schedule {name!r}", "it belongs to another schedule")
    return schedule


def open_mail(run_id: str, content: bytes, sealed_as: bytes) -> Mail:
    """A message to a run; Damaged if the row was changed."""
    mail: Mail = _open(_decoder(Mail), f"a message to run {run_id!r}", content, sealed_as)
    if mail.run_id != run_id:
        raise Damaged(f"a message to run {run_id!r}", "it belongs to another run")
    return mail
