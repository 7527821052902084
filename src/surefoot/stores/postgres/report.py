"""What this server promises, read when it is opened, and what a failover or a power loss could therefore lose."""

from __future__ import annotations

import msgspec

VERSION_MIN = 130000


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A server's settings as they were found."""

    version: int
    version_text: str
    encoding: str
    in_recovery: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    synchronous_standby_names: str
    data_checksums: bool
    standby_count: int
    pooled: bool

    def refusals(self) -> list[str]:
        """Why no store can be kept here; empty when it can."""
        found: list[str] = []
        if self.version < VERSION_MIN:
            found.append(f"PostgreSQL {self.version_text} is too old; Surefoot needs {VERSION_MIN // 10000} or newer")
        if self.encoding != "UTF8":
            found.append(f"expected a database in UTF8, found {self.encoding}; create one with ENCODING 'UTF8'")
        if self.in_recovery:
            found.append("the server is a standby, which cannot be written; give the address of its primary")
        return found

    def losses(self) -> list[str]:
        """What could be lost although it was acknowledged, most first; empty when nothing can."""
        found: list[str] = []
        if not self.fsync:
            found.append("fsync is off: a crash of its machine can lose or damage everything; switch it on")
        if not self.full_page_writes:
            found.append("full_page_writes is off: a crash of its machine can damage pages; switch it on")
        if self.standby_count and not self.synchronous_standby_names:
            found.append(
                f"{self.standby_count} standbys follow without being waited for: a failover to one loses the last "
                "transactions, and what they recorded may be done again; set synchronous_standby_names"
            )
        return found

    def lines(self) -> list[str]:
        """All of it, for people."""
        checksums = "on" if self.data_checksums else "off: a changed byte is noticed by Surefoot's own digests only"
        standbys = self.synchronous_standby_names or "none: a commit waits for this server's disk only"
        asked = self.synchronous_commit
        if asked not in ("on", "remote_apply"):
            asked = f"on (the server's default is {asked}; each of Surefoot's transactions overrides it)"
        presence = "unknown, since a pooler is in between: a dead worker is noticed when its lease ends"
        return [
            f"PostgreSQL {self.version_text}, fsync {'on' if self.fsync else 'off'}, synchronous_commit {asked}",
            f"synchronous standbys: {standbys}",
            f"data checksums: {checksums}",
            f"presence: {presence if self.pooled else 'a dead worker is noticed at once'}",
            *(f"can be lost: {loss}" for loss in self.losses()),
        ]
