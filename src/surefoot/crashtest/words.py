"""Verdicts in plain words: where it was killed, what happened then, and which request it was. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from .judge import Verdict
from .matrix import Result
from .rows import Row

TIMES = {1: "once", 2: "twice", 3: "three times"}


def place(row: Row) -> str:
    """What was done to the agent, and where."""
    what = row.boundary
    match row.kind, row.window:
        case "kill", "before":
            return f"killed when {what} had arrived and before it acted"
        case "kill", "effect":
            return f"killed after {what} acted and before its reply arrived"
        case "kill", "read":
            return f"killed as soon as it had read the reply of {what}"
        case "kill", "recorded":
            return f"killed after the reply of {what} and before the next request"
        case "twice", _:
            return f"killed after {what} acted, and again at the first request of its second life"
        case "deploy", _:
            return f"killed at {what} ({row.window}) under the old code and restarted under the new"
        case "pause", "before":
            return f"stopped when {what} had arrived, while another copy took over, and continued then"
        case "pause", _:
            return f"stopped after {what} acted, while another copy took over, and continued then"
        case "lose_reply", _:
            return f"when the reply of {what} was lost"
        case "500_after", _:
            return f"when {what} acted and was answered 500"
        case "late", _:
            return f"when {what} acted after its connection had been cut"
        case "replicas", _:
            return f"when {row.copies} copies started together"
        case _:
            return "with nothing done to it"


def times(count: int) -> str:
    """A count as an adverb."""
    return "not at all" if count <= 0 else TIMES.get(count, f"{count} times")


def names(counted: Iterable[str]) -> str:
    """Names as a list, the first three."""
    listed = list(counted)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(f"“{name}”" for name in listed[:3]) + more


def happened(verdict: Verdict) -> str:
    """What came of it."""
    if verdict.fault:
        return f"this row proves nothing: {verdict.fault}"
    if verdict.unreached and not verdict.fails:
        return f"could not be killed there: {verdict.unreached}; nothing was tested"
    parts: list[str] = []
    if verdict.duplicates:
        name, more = max(verdict.duplicates.items(), key=lambda item: item[1])
        found = verdict.done.get(name, more + 1)
        instead = f" instead of {times(found - more)}" if found - more != 1 else ""
        others = len(verdict.duplicates) - 1
        parts.append(
            f"did “{name}” {times(found)}{instead}" + (f" (and {others} more effects too often)" if others else "")
        )
    if verdict.lost:
        parts.append(f"never did {names(verdict.lost)}")
    for name, text in list(verdict.wrong.items())[:1]:
        parts.append(f"did “{name}” with the wrong content ({text})")
    if verdict.stranded:
        parts.append(f"is stranded: {verdict.stranded}")
    if verdict.wrong_answer:
        parts.append(f"answered wrong ({verdict.wrong_answer[-160:]})")
    if verdict.gave_up:
        parts.append(f"could not be brought to an end: {verdict.gave_up}")
    if verdict.says_success:
        parts.append("and said success")
    if not parts:
        if verdict.asks:
            return "stopped and asks a person"
        calls = "1 model call" if verdict.extra_model_calls == 1 else f"{verdict.extra_model_calls} model calls"
        paid = f", and paid for {calls} again" if verdict.extra_model_calls else ""
        return f"came out as if nothing had been done to it{paid}"
    return ", ".join(parts).replace(", and said", " and said")


def keys(verdict: Verdict) -> str:
    """Whether the requests that acted carried a key."""
    if not verdict.duplicates or not verdict.requests:
        return ""
    if verdict.keyless:
        return f"the idempotency key was missing in {verdict.keyless} of {verdict.requests} requests"
    return f"all {verdict.requests} requests carried a key, and it was another one, or the receiver does not honour it"


def sentence(verdict: Verdict) -> str:
    """One row in one sentence."""
    about = keys(verdict)
    told = f"{place(verdict.row)}, your agent {happened(verdict)}"
    if verdict.fault:
        told = f"{place(verdict.row)}: {happened(verdict)}"
    return f"{told[0].upper()}{told[1:]}{'; ' + about if about else ''}"


SEVERITY = ("duplicates", "wrong", "lost", "stranded", "wrong_answer", "gave_up")


def worst(result: Result) -> Verdict | None:
    """The row to show: the gravest verdict, at the plainest row."""
    for name in SEVERITY:
        for verdict in result.failing:
            if getattr(verdict, name):
                return verdict
    return None


def headline(result: Result) -> str:
    """The whole test in one sentence."""
    rows, kills = len(result.verdicts), sum(v.kills for v in result.verdicts)
    if result.faults:
        first = result.faults[0]
        return f"{len(result.faults)} of {rows} rows prove nothing. The first, {first.row.id}: {first.fault}."
    shown = worst(result)
    asked = sum(v.asks for v in result.verdicts)
    if shown is None:
        asks = f", and asked a person {asked} times" if asked else ""
        some = len(result.unreached)
        if some == rows:
            return f"Nothing was tested: {result.unreached[0].row.id}: {result.unreached[0].unreached}."
        which = f"{rows - some} of {rows}" if some else f"all {rows}"
        text = f"In {which} rows, with {kills} kills proved, your agent did everything exactly once{asks}."
        if some:
            text += f" {some} tested nothing: {result.unreached[0].row.id}: {result.unreached[0].unreached}."
        extra = max((v.extra_model_calls for v in result.verdicts), default=0)
        return text + (f" At worst it paid for {extra} model call{'s' * (extra > 1)} again." if extra else "")
    told = sentence(shown)
    return f"{len(result.failing)} of {rows} rows fail. {told}. Here is the request:"


def command_of(row: Row, options: Sequence[str] = (), command: Sequence[str] = ()) -> str:
    """The command that runs this row alone, to paste into a shell."""
    return shlex.join(["surefoot", "crashtest", *options, "--row", row.id, *(["--", *command] if command else [])])
