"""What `x.outcome(...)` told a workflow is recorded; an error while recording it is the store's, never the effect's."""

from collections.abc import Sequence

import pytest

from surefoot import Attempt, NotCommitted, Surefoot, effect, opaque, workflow
from surefoot.core.writes import Answer, Append, Write
from surefoot.stores.memory import MemoryStore


class FullDisk(MemoryStore):
    """Has no room for the record of a doubt."""

    def transact(self, writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        """Refuse such a record, and do everything else."""
        if any(isinstance(write, Append) and write.draft.slot.startswith("in_doubt:") for write in writes):
            raise NotCommitted("no room")
        return super().transact(writes, again=again)


def test_an_error_while_recording_what_was_told_stops_the_run_although_it_catches_everything() -> None:
    @effect(opaque(), timeout=0.2, name="told_mail")
    def mail(attempt: Attempt) -> None:
        raise ConnectionResetError

    @workflow(name="told_flow")
    def flow() -> str:
        try:
            return type(mail.outcome()).__name__
        except Exception:
            return "swallowed"

    with Surefoot(FullDisk()) as surefoot:
        with pytest.raises(NotCommitted):
            surefoot.run(flow, id="r")
        assert not surefoot.get("r").finished
