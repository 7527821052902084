"""The HTML report: one file that asks the network for nothing, with a picture of boundaries and windows.

It draws what was judged and computes no count of its own. Everything that an agent said is escaped.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path

from .judge import Verdict
from .matrix import Result
from .table import mark
from .words import headline, sentence, worst

CELL_WIDTH, CELL_WIDTH_LEAST, CELL_HEIGHT, LEFT, TOP = 62, 18, 34, 84, 28
WIDTH, WIDTH_OF_A_WORD = 1_020, 50
DETAILS_MAX = 60


def write_page(path: Path, result: Result, commands: Mapping[str, str]) -> None:
    """Write the report; the one that was there stays until this one is whole."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(render(result, commands), "utf-8")
    beside.replace(path)


def render(result: Result, commands: Mapping[str, str]) -> str:
    """The whole page."""
    bad = bool(result.failing or result.faults) or len(result.unreached) == len(result.verdicts)
    style = files("surefoot.crashtest").joinpath("page.css").read_text("utf-8")
    shown = worst(result)
    title = headline(result)
    parts = [
        "<!doctype html>",
        (
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
            'initial-scale=1">'
        ),
        f'<meta name="color-scheme" content="light dark"><title>{escape(result.title)}: crash test</title>',
        f"<style>\n{style}</style></head><body><main>",
        f'<p class="agent">{escape(result.title)}</p>',
        f'<h1 class="{"bad" if bad else "good"}">{escape(title)}</h1>',
        f"<pre>{escape(shown.request)}</pre>" if shown is not None and not result.faults else "",
        stats(result),
        picture(result),
        others(result),
        details(result, commands),
        boundaries(result),
        "".join(f'<p class="soft">Note: {escape(text)}</p>' for text in result.warnings),
        (
            f"<footer>surefoot crashtest, {len(result.verdicts)} rows in {result.seconds:.1f} s, {result.jobs} worlds "
            "at once; "
            f"{escape(platform.system())} {escape(platform.machine())}. Effects are counted in the ledger of the "
            "services, which is "
            "on disk before a reply leaves; each kill is proved by the exit signal.</footer>"
        ),
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def stats(result: Result) -> str:
    """The figures at the top."""
    found = result.verdicts
    figures = [
        ("boundaries", str(len(result.boundaries)), False),
        ("rows", str(len(found)), False),
        ("kills, proved", str(sum(v.kills for v in found)), False),
        ("rows that fail", str(len(result.failing)), bool(result.failing)),
        ("model calls paid again, at worst", str(max((v.extra_model_calls for v in found), default=0)), False),
        ("tokens paid again, at worst", f"{max((v.extra_tokens for v in found), default=0):,}", False),
        ("slowest recovery", f"{max((v.recover_seconds for v in found), default=0.0):.1f} s", False),
    ]
    items = "".join(
        f"<div{' class=bad' if is_bad else ''}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value, is_bad in figures
    )
    return f'<dl class="stats">{items}</dl>'


def shade(verdict: Verdict) -> str:
    """The class that colours a row."""
    if verdict.fault:
        return "fault"
    if verdict.fails:
        return "bad"
    if verdict.unreached:
        return "unreached"
    return "asks" if verdict.asks else "paid" if verdict.extra_model_calls else "once"


def anchor(verdict: Verdict) -> str:
    """The id of a row's details."""
    return "row-" + "".join(c if c.isalnum() else "-" for c in verdict.row.id)


def picture(result: Result) -> str:
    """Boundaries from left to right as they come, windows from top to bottom."""
    kills = {(v.row.boundary, v.row.window): v for v in result.verdicts if v.row.kind == "kill"}
    if not kills:
        return ""
    names = [a.boundary for a in result.boundaries if any(key[0] == a.boundary for key in kills)]
    windows = list(dict.fromkeys(window for _, window in kills))
    numbers = {a.boundary: a.number for a in result.boundaries}
    step = min(CELL_WIDTH, max(CELL_WIDTH_LEAST, (WIDTH - LEFT) // len(names)))
    width, height = LEFT + step * len(names), TOP + CELL_HEIGHT * len(windows) + 4
    cells = [
        f'<text x="{LEFT + step * x + step / 2 - 2:g}" y="18" text-anchor="middle" '
        f'class="soft">{numbers[name]}'
        f"<title>{escape(name)}</title></text>"
        for x, name in enumerate(names)
    ]
    for y, window in enumerate(windows):
        cells.append(f'<text x="0" y="{TOP + CELL_HEIGHT * y + 20}" class="soft">{escape(window)}</text>')
        cells += [_cell(kills[name, window], x, y, step) for x, name in enumerate(names) if (name, window) in kills]
    told = f"{len(kills)} kills: {sum(not v.fails for v in kills.values())} came out as if nothing had been done."
    dash = " A dash: it had ended before the kill came, so nothing was tested." if result.unreached else ""
    return (
        "<h2>Killed at each request</h2>"
        '<p class="soft">One column for each request, in the order in which it comes; one row for each window. '
        "Green: as if "
        "nothing had been done. Amber: model calls were paid again, so many. Red: the row fails; it leads to "
        "what happened."
        f"{dash}</p>"
        f'<div class="scroll"><svg role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<title>Boundaries and windows</title><desc>{escape(told)}</desc>{''.join(cells)}</svg></div>"
    )


def _cell(verdict: Verdict, x: int, y: int, step: int) -> str:
    word = (
        mark(verdict)[0]
        if step >= WIDTH_OF_A_WORD and not verdict.unreached
        else {"bad": "×", "fault": "!", "asks": "?", "unreached": "–"}.get(shade(verdict), "")
    )
    kind = shade(verdict)
    left, top = LEFT + step * x, TOP + CELL_HEIGHT * y
    drawn = (
        f'<rect x="{left}" y="{top}" width="{step - 4}" height="{CELL_HEIGHT - 4}" rx="4" class="{kind}"/>'
        f'<text x="{left + step / 2 - 2:g}" y="{top + 20}" text-anchor="middle" '
        f'class="{kind}">{escape(word)}</text>'
    )
    told = f"<title>{escape(sentence(verdict))}</title>"
    if kind in ("bad", "fault"):
        return f'<a href="#{anchor(verdict)}">{told}{drawn}</a>'
    return f"<g>{told}{drawn}</g>"


def others(result: Result) -> str:
    """Rows that are no single kill."""
    rows = [v for v in result.verdicts if v.row.kind != "kill"]
    if not rows:
        return ""
    lines = "".join(
        f'<tr><td><span class="tag {shade(v)}">{escape(mark(v)[0])}</span></td><td>{escape(sentence(v))}</td>'
        f'<td class="number">{f"{v.recover_seconds:.1f} s" if v.recover_seconds else ""}</td></tr>'
        for v in rows
    )
    return (
        "<h2>Other rows</h2><table><thead><tr><th></th><th>what was done, and what came of it</th>"
        f'<th class="number">recovers</th></tr></thead><tbody>{lines}</tbody></table>'
    )


def details(result: Result, commands: Mapping[str, str]) -> str:
    """Each row that fails: what happened, the request, and the command that does it again."""
    rows = [*result.faults, *result.failing]
    if not rows:
        return ""
    told = "".join(
        f'<article id="{anchor(v)}"><p>{escape(sentence(v))}.</p><pre>{escape(v.request or "no request")}</pre>'
        f"<pre>{escape(commands.get(v.row.id, v.row.id))}</pre></article>"
        for v in rows[:DETAILS_MAX]
    )
    more = f'<p class="soft">And {len(rows) - DETAILS_MAX} more.</p>' if len(rows) > DETAILS_MAX else ""
    return f"<h2>Rows that fail</h2>{told}{more}"


def boundaries(result: Result) -> str:
    """What the clean run asked for."""
    lines = "".join(
        f'<tr><td class="number">{a.number}</td><td><code>{escape(a.boundary)}</code></td>'
        f"<td>{escape(', '.join(a.acted)) or ('a model call' if a.is_model else 'reads')}</td></tr>"
        for a in result.boundaries
    )
    return (
        "<h2>Boundaries of the clean run</h2><table><thead><tr><th class=number>number</th><th>request</th>"
        f"<th>what it does</th></tr></thead><tbody>{lines}</tbody></table>"
    )
