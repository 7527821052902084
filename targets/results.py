"""What a target's run amounts to: rows, the proof that each was really struck, and the file that holds them.

A row is one fault done to one arm, `tries` times. It counts only if every fault that was asked for is proved to have
happened: a kill by the exit status of the process, anything else by the service that did it. A row without its
proof is a fault of the harness; `Result.complaints` lists it, and it is never saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Verdict = Literal["once", "told", "twice", "lost", "stuck", "wrong"]
GREEN: tuple[Verdict, ...] = ("once", "told")
MEANING: dict[Verdict, str] = {
    "once": "every effect happened once, and the run ended with the right answer",
    "told": "no effect happened twice, and what cannot be known waits for a person, who is told how to end it",
    "twice": "an effect happened more than once",
    "lost": "an effect never happened, and nobody was told",
    "stuck": "the run neither ends nor says what it waits for",
    "wrong": "the run ended with a wrong answer, acted on something else than was asked, or said success and was not",
}


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault, one arm.

    `seen` is the cell of the table, such as `2/2/1`. `good` of `tries` came out as `once` or `told`; `verdict` is the
    worst of them. `fault` says what was done (`kill`, `none`, or words); `asked` and `done` how often it was to happen
    and was proved. `ends` counts the exit statuses of all processes; -9 is SIGKILL. `why`
    explains a verdict that is not green.
    """

    row: str
    arm: str
    seen: str
    verdict: Verdict
    ours: bool = False
    tries: int = 1
    good: int = 0
    fault: str = "kill"
    asked: int = 1
    done: int = 0
    ends: dict[str, int] = {}
    counts: dict[str, float] = {}
    why: str = ""

    @property
    def green(self) -> bool:
        return self.verdict in GREEN

    def complaints(self) -> Iterable[str]:
        """Why this row proves nothing, if so."""
        name = f"{self.arm} / {self.row}"
        if self.asked != self.done:
            yield f"{name}: {self.asked} x {self.fault} asked for, {self.done} proved"
        if self.fault == "kill" and self.ends.get("-9", 0) < self.done:
            yield f"{name}: {self.done} kills are claimed, {self.ends.get('-9', 0)} processes ended by SIGKILL"
        if self.fault == "none" and (self.asked or self.ends.get("-9", 0)):
            yield f"{name}: a control in which something was killed"
        if self.green != (self.good == self.tries):
            yield f"{name}: verdict {self.verdict}, and {self.good} of {self.tries} are good"
        if self.ours and not self.green and not self.why:
            yield f"{name}: ours is not green, and nothing says why"


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A target's rows with what is needed to get them again."""

    target: str
    date: str
    command: str
    machine: str
    versions: dict[str, str]
    seconds: float
    rows: list[Row]
    note: str = ""

    def complaints(self) -> list[str]:
        """Every reason why this must not be saved or shown."""
        found = [complaint for row in self.rows for complaint in row.complaints()]
        names = [(row.arm, row.row) for row in self.rows]
        found += [f"{arm} / {row} is there twice" for arm, row in sorted({n for n in names if names.count(n) > 1})]
        if not self.rows:
            found.append("no rows")
        return found


class NotProved(Exception):
    """Rows whose fault is not proved, or that contradict themselves."""


def read(path: Path) -> Result:
    """The committed result of a target."""
    return msgspec.json.decode(path.read_bytes(), type=Result)


def save(path: Path, result: Result) -> None:
    """Replace the committed result; raises `NotProved` and writes nothing if a row proves nothing."""
    complaints = result.complaints()
    if complaints:
        raise NotProved("\n".join(complaints))
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    draft.replace(path)


def keep_refused(result: Result, folder: Path) -> Path:
    """Write rows that must not be committed where an hour's work is not lost; the file, which git ignores."""
    folder.mkdir(exist_ok=True)
    path = folder / f"refused-{result.target}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    return path


def merged(old: Result, new: Result, *, by_row: bool = False) -> Result:
    """The new rows in the place of the old ones; `NotProved` if other versions made them.

    An arm that was measured again keeps none of its old rows, unless single rows of it were asked for (`by_row`).
    """
    if old.versions != new.versions:
        raise NotProved(f"other versions: {old.versions} then, {new.versions} now; measure all of it again")
    again = {(row.arm, row.row): row for row in new.rows}
    arms = set() if by_row else {row.arm for row in new.rows}
    rows: list[Row] = []
    for row in old.rows:
        if (row.arm, row.row) in again:
            rows.append(again.pop((row.arm, row.row)))
        elif row.arm not in arms:
            rows.append(row)
    note = old.note or f"Arms were measured one by one, the first on {old.date}." if old.date != new.date else old.note
    return msgspec.structs.replace(
        new, rows=[*rows, *again.values()], seconds=old.seconds + new.seconds, note=note, command=old.command
    )
