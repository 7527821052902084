"""A person ends a doubt. Only a parked effect can be decided; who, when and why are kept as evidence.

The store decides inside its transaction whether the effect is still parked, so two people cannot both win.
"""

from __future__ import annotations

import getpass
import os
import re

import msgspec

from ..core.effect import Do, Effect, Event, Evidence
from ..core.errors import ValueRefused
from ..core.flows import spill
from ..core.ids import check_id
from ..core.values import encode_canonical
from ..core.writes import DecideEffect, Verdict
from .desk import EVERYTHING, KEY_SHOWN, Desk
from .doubts import described
from .exits import Exit, Failed
from .shapes import Resolved

HEX_DIGITS_MIN = 4
WHY_CHARACTERS_MAX = 4000
_PREFIX = re.compile(f"[0-9a-f]{{{HEX_DIGITS_MIN},32}}")


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says about an effect; `receipt` is JSON."""

    do: Do
    receipt: bytes
    why: str
    who: str


def check_decision(happened: str | None, did_not_happen: bool, abandon: bool, why: str, who: str | None) -> Decision:
    """The decision that the options make; raises Failed for anything but exactly one, with a reason."""
    if (happened is not None) + did_not_happen + abandon != 1:
        raise Failed(Exit.BAD_INPUT, "say exactly one of --happened JSON, --did-not-happen, --abandon")
    receipt = b"" if happened is None else _check_receipt(happened)
    do = Do.DID_NOT_HAPPEN if did_not_happen else Do.ABANDON if abandon else Do.HAPPENED
    return Decision(do=do, receipt=receipt, why=_check_text(why, "--why"), who=_check_text(who or user_name(), "--who"))


def _check_receipt(text: str) -> bytes:
    try:
        return encode_canonical(msgspec.json.decode(text.encode()), "the receipt")
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueRefused) as error:
        raise Failed(
            Exit.BAD_INPUT,
            f"--happened takes the receipt as JSON, such as '{{\"id\": 7}}', or null when there is none; "
            f"found {text[:80]!r}: {error}",
        ) from None


def _check_text(text: str, option: str) -> str:
    text = text.strip()
    if not text:
        raise Failed(Exit.BAD_INPUT, f"{option} is empty; it is kept as evidence, so say what you saw, and where")
    if len(text) > WHY_CHARACTERS_MAX:
        raise Failed(Exit.BAD_INPUT, f"{option} has {len(text):,} characters, {WHY_CHARACTERS_MAX:,} at most")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise Failed(Exit.BAD_INPUT, f"{option} is not valid text in this terminal's encoding")
    return text


def user_name() -> str:
    """Who the operating system says is asking."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        pass
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return "unknown"


# --- which effect -----------------------------------------------------------------------------------------------


def find_effect(desk: Desk, run_id: str, wanted: str) -> Effect:
    """The one effect that `wanted` names in this run; Failed when there is none, or when there are several."""
    check_id(wanted, "EFFECT")
    outside = run_id == "-"
    if outside:
        everything = desk.store.find_effects(limit=EVERYTHING)
        candidates = [(effect, {effect.slot}) for effect in everything]
        matches = [e for e, slots in candidates if _matches(e, slots, wanted, by_name=not e.run)]
    else:
        run, entries, _ = desk.read_run(run_id)
        candidates = desk.effects_of(run.id, entries)
        matches = [e for e, slots in candidates if _matches(e, slots, wanted, by_name=True)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = "\n".join(f"  {described(effect, desk.now)}" for effect in matches)
        raise Failed(Exit.BAD_INPUT, f"{wanted!r} names {len(matches)} effects; use the key of one:\n{listed}")
    shown = [effect for effect, _ in candidates if not outside or not effect.run]
    listed = "\n".join(f"  {described(effect, desk.now)}" for effect in shown[:20])
    where = "outside any run" if outside else f"in run {run_id!r}"
    these = f"; these exist:\n{listed}" if listed else "; it has none" if not outside else "; there are none"
    raise Failed(
        Exit.NOT_FOUND,
        f"no effect {wanted!r} {where} (expected {HEX_DIGITS_MIN} or more hex digits of its key, its slot, or its name)"
        + these,
    )


def _matches(effect: Effect, slots: set[str], wanted: str, *, by_name: bool) -> bool:
    by_key = _PREFIX.fullmatch(wanted.lower()) is not None and effect.key.startswith(wanted.lower())
    return by_key or (by_name and (wanted == effect.name or wanted in slots))


# --- the decision -----------------------------------------------------------------------------------------------


def resolve(desk: Desk, run_id: str, wanted: str, decision: Decision) -> Resolved:
    """Decide the effect, durably; raises Failed when it is not parked."""
    effect = find_effect(desk, run_id, wanted)
    receipt, blobs = spill(decision.receipt, desk.sf.engine.inline_bytes)
    evidence = Evidence(
        at=desk.now,
        kind="decision",
        found=decision.do,
        text=decision.why,
        value=receipt,
        who=decision.who,
        attempt=effect.attempts,
    )
    reason = f"decided by {decision.who}: {decision.why}"
    event = Event(do=decision.do, at=desk.now, receipt=receipt, reason=reason, evidence=evidence)
    write = DecideEffect(key=effect.key, event=event, blobs=blobs, stamp=next(desk.sf.engine.stamps))
    answer = desk.sf.engine.committer.commit(write)
    if answer.verdict is not Verdict.DONE or answer.effect is None:
        raise _not_parked(answer.effect or effect)
    asker = run_id if run_id != "-" else answer.effect.run
    again = f"run {asker!r} again with the same id" if asker else "call it again with the same arguments"
    then = {
        Do.HAPPENED: f"{again}: it goes on with this receipt",
        Do.DID_NOT_HAPPEN: f"{again}: the effect is sent again",
        Do.ABANDON: f"{again}: the effect raises Abandoned there",
    }
    return Resolved(effect=desk.effect_row(answer.effect), next=then[decision.do])


def _not_parked(effect: Effect) -> Failed:
    why = effect.reason
    if not why and effect.owner:
        why = "it is being settled, or will be by its contract"
    decided = next((e for e in reversed(effect.evidence) if e.kind == "decision"), None)
    if decided is not None and decided.text not in why:
        why = f"{why}; {decided.who} decided {decided.found}: {decided.text}".removeprefix("; ")
    return Failed(
        Exit.ILLEGAL,
        f"effect {effect.name!r} ({effect.key[:KEY_SHOWN]}) is {effect.status}, not parked{why and ': ' + why}. "
        "Only a parked effect is decided by a person; nothing was changed.",
    )
