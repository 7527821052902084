"""What reaches a run from outside: signals and decisions. Kept until the run reads them, each read once.

Mail is written by whoever sends it and never changed; that a run has read it stands in the run's journal. So nothing is
lost when it arrives before the run asks, and nothing is read twice when the run is replayed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Mail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message to a run. `number` counts the run's mail from 1; `id` makes sending twice the same as once.

    `value` is JSON; `who` sent it.
    """

    run_id: str
    number: int
    id: str
    name: str
    at: float
    value: bytes = b"null"
    who: str = ""


def unread(mail: Sequence[Mail], name: str, read: set[int]) -> list[Mail]:
    """The messages of this name that the run has not read, oldest first."""
    return [message for message in mail if message.name == name and message.number not in read]
