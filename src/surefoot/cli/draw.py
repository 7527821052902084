"""Draws each document for people. Reads `shapes` only, so what a person sees is in the JSON too."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.run import RunStatus
from .page import Page, Part
from .shapes import (
    Cancelled,
    Checkup,
    Divergence,
    Doubt,
    Doubts,
    EffectFinding,
    EffectRow,
    Moment,
    Resolved,
    RunFinding,
    Runs,
    ScheduleFinding,
    Shown,
    Tokens,
)
from .text import ago, clock, compact, day, moment

KEY_SHOWN = 12
STATUS_WIDTH = 11
STATUS_COLUMN = max(map(len, RunStatus)) + 2
DIM = "dim"


def draw_runs(page: Page, document: Runs, now: float) -> None:
    """One line a run; the id is last, so it is never cut."""
    if not document.runs:
        page.line("no runs")
        return
    width = min(max(len(row.workflow) for row in document.runs), 24)
    page.line((f"{'STATUS':<{STATUS_COLUMN}}{'CHANGED':<14}{page.cell('WORKFLOW', width)}  RUN", "bold"))
    for row in document.runs:
        mark = " (cancel requested)" if row.cancel_requested and row.status != "cancelled" else ""
        page.line(
            page.status(row.status, STATUS_COLUMN),
            f"{ago(now - row.updated_at):<14}",
            f"{page.cell(row.workflow, width)}  ",
            (row.id, "bold"),
            mark,
        )
    if document.more:
        page.line("(older runs are left out; --limit shows more)")


# --- show -------------------------------------------------------------------------------------------------------


def draw_shown(page: Page, document: Shown, now: float) -> None:
    """The run, its timeline, its effects."""
    run = document.run
    page.line("run ", (run.id, "bold"))
    page.line(f"{run.workflow}  ", page.status(run.status), f"  {ago(now - run.updated_at)}", indent=2)
    page.prose(compact(document.arguments), indent=2, label="arguments  ")
    if run.status == "succeeded":
        page.prose(compact(document.result), indent=2, label="result     ")
    if run.reason:
        page.prose(run.reason, indent=2, label="reason     ")
    if document.damage:
        page.prose(document.damage, indent=2, label="damage     ")
    started = f"{moment(run.created_at)}, taken {run.claims} time{'' if run.claims == 1 else 's'}"
    page.line("started    ", started, indent=2)
    page.line("tokens     ", f"{document.tokens:,}{_in_and_out(document.usage)}", indent=2)
    if document.calls:
        money = f", {document.money} in money" if document.money else ""
        page.line("calls      ", f"{document.calls} of models{money}", indent=2)
    for note in document.notes:
        page.prose(note, indent=2, label="! note     ")
    for limit in document.budget:
        unit = f" {limit.unit}" if limit.unit else ""
        page.line("budget     ", f"{limit.name} {limit.used} of {limit.allowed}{unit}", indent=2)
    if document.parent:
        page.line("parent     ", document.parent, indent=2)
    for child in document.children:
        page.line("child      ", child, indent=2)
    page.gap()
    _draw_timeline(page, document.timeline)
    if document.effects:
        page.gap()
        page.line(("effects", "bold"))
        for row in document.effects:
            draw_effect(page, row)


def _draw_timeline(page: Page, moments: Sequence[Moment]) -> None:
    today = ""
    page.line(("timeline", "bold"))
    for each in moments:
        if day(each.at) != today:
            today = day(each.at)
            page.line((today, DIM), indent=2)
        kind = each.status if each.kind == "status" else each.kind
        text: list[Part] = [each.slot]
        if each.kind in ("step", "call", "failure", "intent"):
            text = [f"{each.slot}({each.text})"]
        elif each.kind == "outcome":
            text += [" ", page.status(each.status), f": {each.text}" if each.text else ""]
        elif each.kind == "status":
            text = []
        else:
            text += [" ", each.text] if each.slot else [each.text]
        facts = _facts(each)
        parts: list[Part] = [(clock(each.at), DIM), "  ", page.status(kind, STATUS_WIDTH), *text, (facts, DIM)]
        page.line(*parts, indent=2)


def _in_and_out(usage: Tokens | None) -> str:
    if usage is None:
        return ""
    cached = f", {usage.cached:,} cached" if usage.cached else ""
    reasoning = f", {usage.reasoning:,} reasoning" if usage.reasoning else ""
    return f" (in {usage.input:,}{cached}; out {usage.output:,}{reasoning})"


def _facts(each: Moment) -> str:
    facts: list[str] = []
    if each.attempts is not None and each.attempts > 1:
        facts.append(f"{each.attempts} attempts")
    if each.tokens is not None:
        facts.append(f"{each.tokens:,} tokens{_in_and_out(each.usage)}")
    if each.money:
        facts.append(f"money {each.money}")
    if each.kind == "intent":
        facts.append(f"key {each.key[:KEY_SHOWN]}")
    return f"  [{', '.join(facts)}]" if facts else ""


def draw_diverged(page: Page, document: Shown) -> None:
    """What is recorded beside what the code asked for."""
    run = document.run
    if document.diverged is None:
        page.line(f"run {run.id} has not diverged: it is ", page.status(run.status))
        return
    page.prose(document.diverged.reason)
    page.gap()
    page.line(("the whole record", "bold"), " (> marks what the code did not ask for)")
    for each in document.timeline:
        if each.entry is not None and each.kind != "outcome":
            _draw_recorded(page, each, document.diverged)


def _draw_recorded(page: Page, each: Moment, diverged: Divergence) -> None:
    unread = any(line.endswith(f"[entry {each.entry}]") for line in diverged.recorded)
    preview = f"({each.text})" if each.kind in ("step", "call", "intent") else ""
    mark = ("> ", "bold red") if unread else "  "
    page.line(mark, f"{each.entry:>5}  ", f"{each.kind:<9}", f"{each.slot}{preview}")


# --- effects ----------------------------------------------------------------------------------------------------


def draw_effect(page: Page, row: EffectRow) -> None:
    """One effect with its evidence."""
    page.line((row.key[:KEY_SHOWN], "bold"), f"  {row.slot}  ", page.status(row.status), indent=2)
    tries = f"{row.attempts} attempt{'' if row.attempts == 1 else 's'}"
    settled = f"{row.status}, {row.contract}, {tries}{row.reason and '; ' + row.reason}"
    page.prose(row.explained or settled, indent=4)
    page.prose(compact(row.request), indent=4, label="request  ")
    page.line("identity ", row.identity, indent=4)
    if row.status in ("confirmed", "compensated"):
        page.prose(compact(row.receipt), indent=4, label="receipt  ")
    for each in row.evidence:
        who = f" by {each.who}" if each.who else ""
        value = f" {compact(each.value)}" if each.value is not None else ""
        text = f": {each.text}" if each.text else ""
        what = f"{each.kind} {each.found}{who}{text}{value}"
        page.prose(what, indent=4, label=f"{day(each.at)} {clock(each.at)}  ")
    draw_commands(page, row.resolve)


def draw_commands(page: Page, commands: Sequence[str]) -> None:
    """Commands to paste, each on its own line."""
    if commands:
        page.line("decide it with one of:", indent=4)
    for command in commands:
        page.line((command, "bold"), indent=6)


def draw_doubts(page: Page, document: Doubts) -> None:
    """Every doubt with its arithmetic, evidence and way out."""
    if not document.doubts:
        page.line("no doubts")
    for number, doubt in enumerate(document.doubts):
        if number:
            page.gap()
        _draw_doubt(page, doubt)


def _draw_doubt(page: Page, doubt: Doubt) -> None:
    page.line("run ", (doubt.effect.run or "- (outside any run)", "bold"))
    draw_effect(page, doubt.effect)
    if doubt.proposals:
        page.line(("requests disagree", "bold yellow"), " under this identity; only the first was recorded", indent=4)
        for number, each in enumerate(doubt.proposals):
            label = "recorded  " if number == 0 else "asked     "
            asker = f"run {each.run}" if each.run else "outside any run"
            page.prose(f"{each.name}({compact(each.request)}) by {asker}, {moment(each.at)}", indent=6, label=label)
    if doubt.next:
        page.prose(doubt.next, indent=4, label="next  ")


def draw_resolved(page: Page, document: Resolved) -> None:
    """What the effect is now."""
    row = document.effect
    page.line(f"{row.slot} {row.key[:KEY_SHOWN]} is now ", page.status(row.status))
    page.prose(document.next, label="next  ")


def draw_cancelled(page: Page, document: Cancelled) -> None:
    """Where the run stands now."""
    page.line("run ", (document.run.id, "bold"), " is ", page.status(document.run.status))
    if document.next:
        page.prose(document.next, label="next  ")


# --- doctor -----------------------------------------------------------------------------------------------------


def draw_checkup(page: Page, document: Checkup, now: float) -> None:
    """What needs attention is marked; the rest is listed."""
    for text in document.damage:
        page.prose(text, label="! damage  ")
    for finding in document.runs:
        _draw_run_finding(page, finding, now)
    for finding in document.effects:
        _draw_effect_finding(page, finding, now)
    for finding in document.schedules:
        page.line(_mark(True), "schedule ", (finding.name, "bold"), f"  {finding.workflow}")
        _draw_rest(page, finding, now)
    findings = [*document.runs, *document.effects]
    always = len(document.damage) + len(document.schedules)
    needy = sum(each.attention for each in findings) + always
    if needy:
        page.line((f"{needy} of {len(findings) + always} need attention (marked !)", "bold yellow"))
    else:
        page.line(("nothing needs attention", "green"))


def _draw_run_finding(page: Page, finding: RunFinding, now: float) -> None:
    row = finding.run
    page.line(_mark(finding.attention), "run ", (row.id, "bold"), "  ", page.status(row.status))
    _draw_rest(page, finding, now)


def _draw_rest(page: Page, finding: RunFinding | ScheduleFinding, now: float) -> None:
    page.prose(finding.why, indent=4, label="why    ")
    page.line(f"since  {moment(finding.since)}, {ago(now - finding.since)}", indent=4)
    page.prose(finding.next, indent=4, label="next   ")
    page.gap()


def _draw_effect_finding(page: Page, finding: EffectFinding, now: float) -> None:
    row = finding.effect
    where = f"of run {row.run}" if row.run else "outside any run"
    page.line(
        _mark(finding.attention), "effect ", (row.key[:KEY_SHOWN], "bold"), f"  {row.slot}  ", page.status(row.status)
    )
    page.line(where, indent=4)
    page.prose(row.explained, indent=4, label="why    ")
    page.line(f"since  {moment(finding.since)}, {ago(now - finding.since)}", indent=4)
    page.prose(finding.next, indent=4, label="next   ")
    draw_commands(page, row.resolve)
    page.gap()


def _mark(attention: bool) -> Part:
    return ("! ", "bold yellow") if attention else "  "
