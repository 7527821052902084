"""Turns what a batch has put into the arguments of one call of the database's `save`."""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any

from ...core.journal import Entry, milliseconds
from ..base import Overlay
from ..records import sealed
from .desk import columns_of
from .sight import Sight
from .wire import Statement, statement_of

# What each argument of `save` is, in the order of the function's own list.
TYPES = {
    "seen_runs": "bigint",
    "seen_run_digests": "bytea",
    "seen_effects": "text",
    "seen_effect_digests": "bytea",
    "seen_owners": "bigint",
    "seen_owner_digests": "bytea",
    "seen_queues": "text",
    "seen_queue_changes": "bigint",
    "seen_schedules": "text",
    "seen_schedule_digests": "bytea",
    "changed_runs": "bigint",
    "changed_run_statuses": "text",
    "changed_run_records": "bytea",
    "changed_run_digests": "bytea",
    "new_runs": "text",
    "new_run_statuses": "text",
    "new_run_created_ats": "double precision",
    "new_run_records": "bytea",
    "new_run_digests": "bytea",
    "changed_effects": "text",
    "changed_effect_statuses": "text",
    "changed_effect_records": "bytea",
    "changed_effect_digests": "bytea",
    "new_effects": "text",
    "new_effect_runs": "text",
    "new_effect_statuses": "text",
    "new_effect_created_ats": "double precision",
    "new_effect_records": "bytea",
    "new_effect_digests": "bytea",
    "saved_owners": "bigint",
    "saved_owners_marked": "boolean",
    "saved_owner_records": "bytea",
    "saved_owner_digests": "bytea",
    "dropped_owners": "bigint",
    "row_runs": "text",
    "row_queues": "text",
    "row_workflows": "text",
    "row_versions": "text",
    "row_keys": "text",
    "row_priorities": "bigint",
    "row_sinces": "double precision",
    "row_due_ats": "double precision",
    "row_owners": "bigint",
    "gone_rows": "text",
    "saved_queues": "text",
    "saved_queue_records": "bytea",
    "saved_queue_digests": "bytea",
    "saved_schedules": "text",
    "saved_schedule_records": "bytea",
    "saved_schedule_digests": "bytea",
    "dropped_schedules": "text",
    "mail_runs": "text",
    "mail_numbers": "bigint",
    "mail_ids": "text",
    "mail_records": "bytea",
    "mail_digests": "bytea",
    "blob_hashes": "bytea",
    "blob_contents": "bytea",
    "entry_runs": "bigint",
    "entry_seqs": "integer",
    "entry_kinds": "smallint",
    "entry_attempts": "integer",
    "entry_at_ms": "bigint",
    "entry_slots": "text",
    "entry_args_digests": "bytea",
    "entry_previews": "bytea",
    "entry_values": "bytea",
    "entry_digests": "bytea",
}
GROUPS = {
    "seen_run": ("seen_runs", "seen_run_digests"),
    "seen_effect": ("seen_effects", "seen_effect_digests"),
    "seen_owner": ("seen_owners", "seen_owner_digests"),
    "seen_queue": ("seen_queues", "seen_queue_changes"),
    "seen_schedule": ("seen_schedules", "seen_schedule_digests"),
    "changed_run": ("changed_runs", "changed_run_statuses", "changed_run_records", "changed_run_digests"),
    "new_run": ("new_runs", "new_run_statuses", "new_run_created_ats", "new_run_records", "new_run_digests"),
    "changed_effect": (
        *("changed_effects", "changed_effect_statuses", "changed_effect_records", "changed_effect_digests"),
    ),
    "new_effect": (
        *("new_effects", "new_effect_runs", "new_effect_statuses", "new_effect_created_ats"),
        *("new_effect_records", "new_effect_digests"),
    ),
    "saved_owner": ("saved_owners", "saved_owners_marked", "saved_owner_records", "saved_owner_digests"),
    "dropped_owner": ("dropped_owners",),
    "queue_row": (
        *("row_runs", "row_queues", "row_workflows", "row_versions", "row_keys", "row_priorities"),
        *("row_sinces", "row_due_ats", "row_owners"),
    ),
    "gone_row": ("gone_rows",),
    "saved_queue": ("saved_queues", "saved_queue_records", "saved_queue_digests"),
    "saved_schedule": ("saved_schedules", "saved_schedule_records", "saved_schedule_digests"),
    "dropped_schedule": ("dropped_schedules",),
    "mail": ("mail_runs", "mail_numbers", "mail_ids", "mail_records", "mail_digests"),
    "blob": ("blob_hashes", "blob_contents"),
    "entry": (
        *("entry_runs", "entry_seqs", "entry_kinds", "entry_attempts", "entry_at_ms", "entry_slots"),
        *("entry_args_digests", "entry_previews", "entry_values", "entry_digests"),
    ),
}


def encode_text(text: str) -> bytes:
    """Text that PostgreSQL's own text type could refuse."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(content: bytes) -> str:
    """The same text; raises ValueError for changed bytes."""
    return content.decode("utf-8", "surrogatepass")


def entry_row(run: int, entry: Entry) -> tuple[Any, ...]:
    """An entry in the order of the `entry` group."""
    at_ms = milliseconds(entry.at)
    fixed = (run, entry.seq, int(entry.kind), entry.attempts, at_ms, entry.slot)
    return (*fixed, entry.args_digest, encode_text(entry.preview), entry.value, entry.digest)


def append_values(run: int, entry: Entry, timeline: str) -> list[bytes]:
    """The same as the values of the statement `append`, which each step pays for.

    Raises struct.error or UnicodeEncodeError for what PostgreSQL cannot hold.
    """
    fixed = _fixed(run, entry.seq, entry.kind, entry.attempts, milliseconds(entry.at))
    return [
        *(fixed[:8], fixed[8:12], fixed[12:14], fixed[14:18], fixed[18:]),
        *(entry.slot.encode(), entry.args_digest, encode_text(entry.preview), entry.value, entry.digest),
        timeline.encode(),
    ]


_fixed = struct.Struct(">qihiq").pack


class Saving:
    """One batch, ready to be sent."""

    def __init__(self, sight: Sight, overlay: Overlay, marked: set[int], *, only_appends: bool) -> None:
        """`marked`: the owners whose presence this process holds. Appends alone are fenced by their places."""
        self.digests: dict[str, bytes] = {}
        self.new_runs: list[str] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        if not only_appends:
            self._see(sight)
        self._put_runs(sight, overlay)
        self._put_effects(sight, overlay)
        for owner_id, owner in overlay.owners.items():
            content, digest = self._sealed(f"owner {owner_id}", owner)
            self._add("saved_owner", (owner_id, owner_id in marked, content, digest))
        self._put_desk(overlay)
        for blob in overlay.blobs.items():
            self._add("blob", blob)
        places = {name: -place for place, name in enumerate(self.new_runs, 1)}
        for run_id, entry in overlay.entries:
            seen = sight.seen_run(run_id)
            self._add("entry", entry_row(places[run_id] if seen is None else seen.num, entry))

    def _add(self, group: str, row: tuple[Any, ...]) -> None:
        self._rows.setdefault(group, []).append(row)

    def _sealed(self, name: str, record: Any) -> tuple[bytes, bytes]:
        content, digest = sealed(record)
        self.digests[name] = bytes(digest)
        return bytes(content), self.digests[name]

    def _see(self, sight: Sight) -> None:
        for run in sight.runs.values():
            if run is not None:
                self._add("seen_run", (run.num, run.digest))
        for key, effect in sight.effects.items():
            if effect is not None:
                self._add("seen_effect", (key, effect.digest))
        for seen in sight.owner_digests.items():
            self._add("seen_owner", seen)
        for seen in sight.queue_changes.items():
            self._add("seen_queue", seen)
        for seen in sight.schedule_digests.items():
            self._add("seen_schedule", seen)

    def _put_runs(self, sight: Sight, overlay: Overlay) -> None:
        for run_id, run in overlay.runs.items():
            content, digest = self._sealed(run_id, run)
            seen = sight.seen_run(run_id)
            if seen is None:
                self.new_runs.append(run_id)
                self._add("new_run", (run_id, str(run.status), run.created_at, content, digest))
            else:
                self._add("changed_run", (seen.num, str(run.status), content, digest))

    def _put_effects(self, sight: Sight, overlay: Overlay) -> None:
        for key, effect in overlay.effects.items():
            content, digest = self._sealed(key, effect)
            if sight.load_effect(key) is None:
                self._add("new_effect", (key, effect.run, str(effect.status), effect.created_at, content, digest))
            else:
                self._add("changed_effect", (key, str(effect.status), content, digest))

    def _put_desk(self, overlay: Overlay) -> None:
        rows, gone = overlay.queue_rows()
        for row in rows:
            self._add("queue_row", columns_of(row))
        for run_id in gone:
            self._add("gone_row", (run_id,))
        for queue in overlay.queues.values():
            self._add("saved_queue", (queue.name, *map(bytes, sealed(queue))))
        for name, schedule in overlay.schedules.items():
            if schedule is None:
                self._add("dropped_schedule", (name,))
            else:
                self._add("saved_schedule", (name, *map(bytes, sealed(schedule))))
        for mail in overlay.letters:
            self._add("mail", (mail.run_id, mail.number, mail.id, *map(bytes, sealed(mail))))
        for owner_id in overlay.dropped:
            self._add("dropped_owner", (owner_id,))

    def groups(self) -> frozenset[str]:
        """Which arguments it needs."""
        return frozenset(self._rows)

    def parameters(self, timeline: str) -> list[Any]:
        """The arguments, in the order of `save_statement`."""
        columns = [zip(*self._rows[group], strict=True) for group in GROUPS if group in self._rows]
        return [timeline, *chain.from_iterable(columns)]


def save_statement(template: str, groups: frozenset[str]) -> Statement:
    """The call of `save` with the arguments of these groups alone."""
    names = [name for group in GROUPS if group in groups for name in GROUPS[group]]
    return statement_of(template.replace("{arguments}", ", ".join(f"{name} => %b::{TYPES[name]}[]" for name in names)))
