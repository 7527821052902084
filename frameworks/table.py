"""docs/frameworks/README.md: framework x feature, as measured, from the committed results."""

from __future__ import annotations

from pathlib import Path

from .layout import ROOT, SIX_ROWS, Framework, framework, names
from .results import Measured, Result, load
from .rows import ROWS

PAGE = ROOT / "docs" / "frameworks" / "README.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEAD = (Path(__file__).parent / "page.md").read_text("utf-8")


def write() -> str:
    """Write the page; its path below the repository."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), "utf-8")
    return PAGE.relative_to(ROOT).as_posix()


def page() -> str:
    """The whole page."""
    known = [(one, result) for one in map(framework, names()) if (result := load(one)) is not None]
    others = [one for one in map(framework, names()) if load(one) is None]
    parts = [HEAD.rstrip(), "", BEGIN, *overview(known), ""]
    for one, result in known:
        parts += ["", *section(one, result)]
    for one in others:
        parts += ["", f"## {one.title}", "", f"Not run: {one.not_run}" if one.not_run else "Not measured yet."]
    return "\n".join([*parts, "", END, ""])


def overview(known: list[tuple[Framework, Result]]) -> list[str]:
    """One line for each framework."""
    features = sorted({f for one, result in known for f in _features(result)})
    head = ["framework", "how", "version", "as published, worst", "with Surefoot", "extra model calls", *features]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for one, result in known:
        rows = result.rows
        published = [r for r in rows if not r.surefoot and r.arm == "as published"]
        ours = [r for r in rows if r.surefoot]
        proved = _features(result)
        cells = [
            f"[{one.title}]({one.page})" if (PAGE.parent / one.page).is_file() else one.title,
            one.by,
            _versions(one, result),
            _worst(published),
            _once(ours),
            _extra(ours),
            *(proved.get(feature, "") for feature in features),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def section(one: Framework, result: Result) -> list[str]:
    """The rows of one framework: reserve/charge/confirm, and model calls in brackets."""
    lines = [f"## {one.title}", ""]
    lines.append(f"`{result.command}`, {result.date}, Python {result.python}, {one.licence}, {result.megabytes} MB. ")
    lines += [f"- {note}" for note in one.notes]
    groups: dict[tuple[str, str], dict[str, Measured]] = {}
    for row in result.rows:
        groups.setdefault((row.arm, row.version), {})[row.row] = row
    for order in (SIX_ROWS, tuple(name for name in ROWS if name not in SIX_ROWS)):
        used = [name for name in order if any(name in rows for rows in groups.values())]
        lines += _grid(used, groups) if used else []
    tests = [counts for held in result.tests.values() for counts in held.values()]
    if tests:
        passed, failed = (sum(column) for column in zip(*tests, strict=True))
        lines += ["", f"Tests in its environments: {passed} passed, {failed} failed."]
    return lines


def _grid(used: list[str], groups: dict[tuple[str, str], dict[str, Measured]]) -> list[str]:
    lines = ["", "| arm | " + " | ".join(used) + " |", "|" + "---|" * (len(used) + 1)]
    for (arm, version), rows in groups.items():
        if any(name in rows for name in used):
            name = arm if version == "newest" else f"{arm} ({version})"
            lines.append("| " + " | ".join([name, *(_cell(rows.get(name)) for name in used)]) + " |")
    return lines


def _cell(row: Measured | None) -> str:
    if row is None:
        return ""
    counts = "/".join(str(n) for n in row.effects.values())
    counts = counts if set(row.effects.values()) == {1} else f"**{counts}**"
    return f"{counts} ({row.model_calls})" + ("" if row.ends[-1] == 0 and row.right else ", did not finish")


def _versions(one: Framework, result: Result) -> str:
    told = [result.versions[v].get(one.packages[0], "?") for v in ("oldest", "newest") if v in result.versions]
    return ", ".join(told)


def _worst(rows: list[Measured]) -> str:
    if not rows:
        return ""
    worst = max(rows, key=lambda row: sum(row.effects.values()))
    twice = sum(max(row.effects.values()) > 1 for row in rows if row.kills)
    counts = "/".join(str(n) for n in worst.effects.values())
    return f"{counts}; twice in {twice} of {sum(row.kills > 0 for row in rows)} rows"


def _once(rows: list[Measured]) -> str:
    good = sum(set(row.effects.values()) == {1} and row.ends[-1] == 0 and row.right for row in rows)
    return f"1/1/1 in {good} of {len(rows)} rows" if rows else ""


def _extra(rows: list[Measured]) -> str:
    clean = {(r.arm, r.version): r.model_calls for r in rows if r.row == "control"}
    six = [r for r in rows if r.row in SIX_ROWS and (r.arm, r.version) in clean]
    return f"at most {max(r.model_calls - clean[r.arm, r.version] for r in six)}" if six else ""


ROW_FEATURES = {"re-ordered": "re-ordered tools", "clock": "clock tool"}
SAME_FEATURE = {"parallel": "parallel tools"}


def _feature_of(row: Measured) -> str:
    """The column that a row proves: that of its kind, or else that of its arm."""
    if row.row.startswith("parallel"):
        return "parallel tools"
    return ROW_FEATURES.get(row.row, SAME_FEATURE.get(row.feature, row.feature))


def _features(result: Result) -> dict[str, str]:
    found: dict[str, list[int]] = {}
    for row in result.rows:
        if row.surefoot and (feature := _feature_of(row)):
            good = set(row.effects.values()) == {1} and row.ends[-1] == 0 and row.right
            found.setdefault(feature, [0, 0])[int(not good)] += 1
    for held in result.tests.values():
        for feature, counts in held.items():
            if feature:
                known = found.setdefault(SAME_FEATURE.get(feature, feature), [0, 0])
                known[:] = [known[0] + counts[0], known[1] + counts[1]]
    return {feature: f"{good} of {good + bad}" for feature, (good, bad) in found.items()}
