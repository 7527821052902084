"""The generator of docs/kill-anywhere.md: every word of a figure comes from the committed results."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from targets import results
from targets.layout import ROOT, Target, every
from targets.results import MEANING, Result, Row

PAGE = ROOT / "docs" / "kill-anywhere.md"
HEAD = """# Killed anywhere: agents as published, and with Surefoot

Written by `python -m targets page` from `targets/*/results.json`; do not edit. Each target is a folder with its own
code, and third-party packages by version in an environment of their own. `python -m targets run NAME` measures one
again, `make targets` all that need nothing but a package index.

How to read it:

- Effects are counted in the receiver's ledger alone, which is on disk before an answer leaves. No agent is asked what
  it did.
- Every kill is a real SIGKILL, proved by the exit status of the process; any other fault is proved by the service
  that did it. A row without its proof is never saved.
- After a kill the same command is started again, as a supervisor would. `k of n`: in how many of the tries the
  outcome was good.
- *once* and *told* are good. Arms of ours are in **bold**. Ties and losses are printed like everything
  else.

| word | means |
|---|---|
"""


def write() -> int:
    """Write the page; 0."""
    PAGE.write_text(render(), "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


def check() -> int:
    """0 if the page is what the results say, else 1."""
    same = PAGE.exists() and PAGE.read_text("utf-8") == render()
    if not same:
        print("docs/kill-anywhere.md is not what the results say; run: python -m targets page", file=sys.stderr)
    return 0 if same else 1


def render() -> str:
    """The whole page."""
    targets = [target for target in every() if target.results.exists() or target.not_run]
    measured = [(target, results.read(target.results)) for target in targets if target.results.exists()]
    parts = [HEAD + "".join(f"| {word} | {meaning} |\n" for word, meaning in MEANING.items())]
    parts.append("\n".join(_summary(measured)))
    parts.append("\n".join(remarks(measured)))
    parts += ["\n".join(_section(target, result)) for target, result in measured]
    parts += ["\n".join(_not_run(target)) for target in targets if not target.results.exists()]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _arms(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.arm for row in rows))


def _summary(measured: list[tuple[Target, Result]]) -> Iterator[str]:
    yield "## All of it in one table\n"
    yield "Rows with a good outcome, control rows included; faults are those that were proved.\n"
    yield "| target | arm | good rows | tries that came out well | faults proved | worst |"
    yield "|---|---|---|---|---|---|"
    for target, result in measured:
        for arm in _arms(result.rows):
            rows = [row for row in result.rows if row.arm == arm]
            good, tries = sum(row.good for row in rows), sum(row.tries for row in rows)
            green = sum(row.green for row in rows)
            name = f"**{arm}**" if rows[0].ours else arm
            link = f"[{target.title}](#{_anchor(target)})"
            yield (
                f"| {link} | {name} | {green} of {len(rows)} | {good:,} of {tries:,} | "
                f"{sum(row.done for row in rows):,} | {_worst(rows)} |"
            )


def _worst(rows: list[Row]) -> str:
    order = ("wrong", "twice", "lost", "stuck", "told", "once")
    return next(word for word in order if any(row.verdict == word for row in rows))


def remarks(measured: list[tuple[Target, Result]]) -> Iterator[str]:
    """Where ours is not green, and where others are as good."""
    yield "## Losses and ties\n"
    losses = [
        f"- {t.title}, {r.row} ({r.arm}): {r.verdict}. {r.why}"
        for t, x in measured
        for r in x.rows
        if r.ours and not r.green
    ]
    yield "Rows in which Surefoot is not green:\n" if losses else "There is no row in which Surefoot is not green."
    yield from losses
    told = [f"{t.title}, {r.row} ({r.arm})" for t, x in measured for r in x.rows if r.ours and r.verdict == "told"]
    if told:
        yield "\nRows in which Surefoot could only stop and tell somebody: " + "; ".join(told) + "."
    yield "\nRows, controls apart, in which an arm that is not ours did as well:\n"
    yield "| target | arm | as good in | of |"
    yield "|---|---|---|---|"
    for target, result in measured:
        for arm in _arms([row for row in result.rows if not row.ours]):
            rows = [row for row in result.rows if row.arm == arm and row.asked]
            if rows and any(row.green for row in rows):
                green = sum(row.green for row in rows)
                yield f"| {target.title} | {arm} | {_as_good(rows)} | {green} of {len(rows)} |"


def _as_good(rows: list[Row]) -> str:
    """The rows that came out well; where they are most of many, those that did not."""
    green, others = ([row.row for row in rows if row.green is wanted] for wanted in (True, False))
    if len(green) < 4 or len(green) < len(others):
        return "; ".join(green)
    return f"all but: {'; '.join(others)}" if others else "all"


def _anchor(target: Target) -> str:
    kept = "".join(c for c in target.title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _section(target: Target, result: Result) -> Iterator[str]:
    yield f"## {target.title}\n"
    yield target.what + "\n"
    if target.published:
        yield f"Published: {target.published}\n"
    versions = _versions(result.versions)
    licence = f" Licence of what is killed: {target.licence}." if target.licence else ""
    yield f"`{result.command}`, {result.date}, {result.machine}, {result.seconds:.0f} s; {versions}.{licence}\n"
    arms = _arms(result.rows)
    marked = [f"**{arm}**" if any(r.ours for r in result.rows if r.arm == arm) else arm for arm in arms]
    yield f"| what was done | {' | '.join(marked)} |"
    yield "|---" * (len(arms) + 1) + "|"
    cells = {(row.row, row.arm): _cell(row) for row in result.rows}
    for name in dict.fromkeys(row.row for row in result.rows):
        yield f"| {name} | {' | '.join(cells.get((name, arm), 'does not apply') for arm in arms)} |"
    notes = [*target.notes, *([result.note] if result.note else [])]
    notes += dict.fromkeys(f"{row.arm}, {row.row}: {row.why}" for row in result.rows if row.why)
    if notes:
        yield ""
        yield from (f"- {note}" for note in notes)


def _versions(found: dict[str, str]) -> str:
    """Each package once, with all of its versions."""
    by_name: dict[str, dict[str, str]] = {}
    for name, version in sorted(found.items()):
        by_name.setdefault(name.partition(" (")[0], {})[name] = version
    words: list[str] = []
    for name, labelled in by_name.items():
        words.append(f"{name} {' and '.join(dict.fromkeys(labelled.values()))}")
    return ", ".join(words)


def _cell(row: Row) -> str:
    mark = row.verdict if row.green else f"*{row.verdict}*"
    return f"{row.seen} {mark}, {row.good:,} of {row.tries:,}"


def _not_run(target: Target) -> Iterator[str]:
    yield f"## {target.title}\n"
    yield f"{target.what}\n"
    yield f"**Not measured here.** {target.not_run}"
