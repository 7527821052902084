"""Judges a row by the clean run: what was done twice, what was lost, what came out wrong. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from .boundary import has_key, said
from .config import COUNTED, MEASURED, NO_FAILURE
from .observed import Observed
from .rows import Row


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What clean runs agree on. `contents` leaves out effects whose content differs from run to run."""

    performed: Counter[str]
    contents: Mapping[str, list[str]]
    model_calls: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row, judged. `duplicates` says how often too often, `done` how often; a row with a `fault` does not count.

    `unreached` says why its kill could not land: it tested nothing, and is neither a failure nor a success.
    """

    row: Row
    duplicates: dict[str, int] = field(default_factory=dict[str, int])
    done: dict[str, int] = field(default_factory=dict[str, int])
    lost: dict[str, int] = field(default_factory=dict[str, int])
    wrong: dict[str, str] = field(default_factory=dict[str, str])
    wrong_answer: str = ""
    stranded: str = ""
    gave_up: str = ""
    says_success: bool = False
    asks: bool = False
    unreached: str = ""
    extra_model_calls: int = 0
    extra_tokens: int = 0
    recover_seconds: float = 0.0
    refused: int = 0
    strays: int = 0
    left_children: int = 0
    kills: int = 0
    lives: int = 0
    exit_codes: tuple[int, ...] = ()
    seconds: float = 0.0
    fault: str = ""
    note: str = ""
    request: str = ""
    requests: int = 0
    keyless: int = 0

    def counts(self) -> dict[str, bool]:
        """Which of the verdicts that are counted by rows it has."""
        return {name: bool(getattr(self, name)) for name in COUNTED}

    @property
    def fails(self) -> bool:
        """Something is not as if it had not been killed; a question to a person is no failure."""
        return any(value for name, value in self.counts().items() if name not in NO_FAILURE)


def expect(one: Observed, other: Observed | None) -> Expected:
    """What clean runs agree on."""
    contents = one.contents
    if other is not None:
        contents = {name: bodies for name, bodies in contents.items() if other.contents.get(name) == bodies}
    return Expected(performed=one.performed, contents=contents, model_calls=one.model_calls, tokens=one.tokens)


def judge(seen: Observed, expected: Expected) -> Verdict:
    """One row."""
    done = seen.performed
    asks = _asks(seen)
    duplicates = {n: c - expected.performed[n] for n, c in done.items() if c > expected.performed[n]}
    lost = {n: c - done[n] for n, c in expected.performed.items() if done[n] < c and not asks}
    wrong = _wrong(seen, expected, {*duplicates, *lost})
    stranded = _stranded(seen)
    gave_up = "" if asks or stranded else _gave_up(seen)
    answer = "" if seen.answer_right is not False or asks else (seen.answer_words or "the check said no")
    bad = bool(duplicates or lost or wrong or answer or stranded)
    concerned = [a for a in seen.arrivals if set(a.acted) & {*duplicates, *wrong}]
    struck = [a for a in seen.arrivals if a.struck]
    shown = concerned or struck
    return Verdict(
        row=seen.row,
        duplicates=duplicates,
        done={name: done[name] for name in duplicates},
        lost=lost,
        wrong=wrong,
        wrong_answer=answer,
        stranded=stranded,
        gave_up=gave_up,
        says_success=bad and _ended_well(seen),
        asks=asks,
        unreached=_unreached(seen),
        extra_model_calls=max(0, seen.model_calls - expected.model_calls),
        extra_tokens=max(0, seen.tokens - expected.tokens),
        recover_seconds=seen.recover_seconds,
        refused=len(seen.refused),
        strays=seen.strays,
        left_children=seen.left_children,
        kills=sum(life.proved for life in seen.lives),
        lives=len(seen.lives),
        exit_codes=tuple(life.exit_code for life in seen.lives),
        seconds=seen.seconds,
        fault=_fault(seen),
        note=_note(seen),
        request=said(shown[-1].call) if shown else "",
        requests=len(concerned),
        keyless=sum(not has_key(a.call) for a in concerned),
    )


def _ended_well(seen: Observed) -> bool:
    return bool(seen.lives) and seen.lives[-1].exit_code == 0


def _asks(seen: Observed) -> bool:
    last = seen.lives[-1].exit_code if seen.lives else 0
    return last != 0 and not seen.lives[-1].hung and last in seen.asks_exit


def _wrong(seen: Observed, expected: Expected, counted: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, bodies in expected.contents.items():
        have = seen.contents.get(name, [])
        if name not in counted and have and have != bodies:
            strange = next((body for body in have if body not in bodies), have[0])
            found[name] = f"expected {bodies[0]}, found {strange}"
    return found


def _stranded(seen: Observed) -> str:
    if any(life.hung for life in seen.lives):
        return "it hangs: it was ended when its time was over"
    if seen.still_running:
        return f"its status says {seen.status!r}, and nobody works on it"
    return ""


def _gave_up(seen: Observed) -> str:
    if _ended_well(seen) or not seen.lives:
        return ""
    last = seen.lives[-1]
    return (
        f"its last life of {len(seen.lives)} ended with {last.exit_code}: {last.words[-300:] or 'it printed nothing'}"
    )


def _fault(seen: Observed) -> str:
    """Why this row proves nothing; "" when what was to happen did happen."""
    row = seen.row
    if seen.unrouted:
        return f"no service answers for {seen.unrouted[0]}; give one hosts = [{seen.unrouted[0]!r}]"
    if seen.unmatched and seen.recorded:
        return f"the recording does not match: {seen.unmatched[0]}"
    if row.boundary and not seen.struck:
        return f"the request {row.boundary} never came, so nothing was done to it"
    if row.kills and not _unreached(seen) and not any(life.proved and life.number == 1 for life in seen.lives):
        codes = ", ".join(str(life.exit_code) for life in seen.lives)
        return f"the agent was not killed: its lives ended with {codes}, and none by our SIGKILL"
    if any(life.exit_code == -9 and not life.killed for life in seen.lives):
        return "a life ended by a SIGKILL that was not ours: out of memory, or it killed itself"
    if row.kind == "pause" and not seen.paused:
        return "the agent did not stand still while another one worked"
    if row.kind == "replicas" and not seen.overlapped:
        return "the copies did not live at the same time"
    return ""


def _unreached(seen: Observed) -> str:
    """Only where the agent was found to have ended well by itself when its kill came, after the reply of that request.

    A harness that does not kill never gets here: it finds the agent alive, and leaves it so.
    """
    row = seen.row
    if row.kind != "kill" or row.window not in ("read", "recorded") or not seen.struck or not seen.lives:
        return ""
    first = seen.lives[0]
    if first.number in seen.missed and first.exit_code == 0 and not first.killed:
        return f"it had ended by itself before the kill came, in {seen.attempts} of {seen.attempts} tries"
    return ""


def _note(seen: Observed) -> str:
    if seen.row.kind == "twice" and sum(life.proved for life in seen.lives) < 2:
        return "its second life made no request, so there was nothing to kill it at"
    if seen.unmatched:
        return seen.unmatched[0]
    return ""


def crossed(verdicts: list[Verdict], threshold: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Which thresholds are crossed: name -> (found, allowed)."""
    found: dict[str, tuple[float, float]] = {}
    sound = [v for v in verdicts if not v.fault]
    for name in COUNTED:
        count = sum(v.counts()[name] for v in sound)
        allowed = threshold.get(name, float("inf") if name in NO_FAILURE else 0.0)
        if count > allowed:
            found[name] = (count, allowed)
    for name in MEASURED:
        worst = max((float(getattr(v, name)) for v in sound), default=0.0)
        if name in threshold and worst > threshold[name]:
            found[name] = (worst, threshold[name])
    return found
