"""A receiver in plain words: what it promises, what is relied on and why, and where each fact was read.

The command line and the generated document both print this, so what a person reads is what the contract was made of.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.contract import Bound, Contract, Kind
from .derive import has_key, is_ambiguous, kind_of, lookup_of
from .model import Lookup, Receiver, Token
from .words import CLASSES, DOES, Class, Do, Known, Late, LookupKind, TokenMode


class Line(NamedTuple):
    """One statement under its heading; the headings of neighbours are equal when they belong together."""

    heading: str
    text: str


def describe(receiver: Receiver) -> list[Line]:
    """Everything that is known, in the order in which one asks."""
    return [
        *_what(receiver),
        *_contract(receiver),
        *_in_doubt(receiver),
        *_key(receiver),
        *_answers(receiver),
        *_lookups(receiver),
        *_limits(receiver),
        *_sources(receiver),
    ]


def contracts_of(receiver: Receiver) -> dict[str, Contract]:
    """The contracts by the name under which a program gets them."""
    if receiver.class_ is Class.TWO_STEP_COMMIT:
        return {"prepare": receiver.prepare, "commit": receiver.commit}
    return {"contract": receiver.contract}


def span(seconds: float) -> str:
    """A length of time, in the largest unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def promise(receiver: Receiver) -> str:
    """The contract on one line: its kind and what of it is relied on."""
    if receiver.class_ is Class.TWO_STEP_COMMIT:
        return "lookup to prepare, natural to commit"
    contract = receiver.contract
    match contract.kind:
        case Kind.KEYED if contract.bound is Bound.FOR_EVER:
            return "keyed, for ever"
        case Kind.KEYED:
            return f"keyed, {span(contract.protected_seconds)} relied on"
        case Kind.LOOKUP:
            return f"lookup by {contract.asks_by}, lag {span(contract.lag_seconds)}"
        case Kind.OPAQUE if contract.at_least_once:
            return "opaque, sent again"
        case _:
            return contract.kind.value


def _what(receiver: Receiver) -> list[Line]:
    lines = [Line("what it is", f"{receiver.name}: {CLASSES[receiver.class_]}")]
    if receiver.operations:
        lines.append(Line("operations", "; ".join(receiver.operations)))
    if receiver.api_version:
        lines.append(Line("API version", receiver.api_version))
    lines += [
        Line("setting", f"{name}: {setting.text}" + ("; everything here needs it" if setting.needed else ""))
        for name, setting in receiver.settings.items()
    ]
    lines += [
        Line("operation", f"{name}: {'; '.join(part for part in (variant.text, _window_of(variant.window)) if part)}")
        for name, variant in receiver.variants.items()
    ]
    lines.append(Line("a duplicate costs", receiver.stakes.value))
    return lines


def _window_of(window: object) -> str:
    seconds, bound = getattr(window, "seconds", None), getattr(window, "bound", None)
    if seconds is not None:
        return f"kept for {span(seconds)}"
    return "kept for ever" if bound is Bound.FOR_EVER else ""


# --- the contract -----------------------------------------------------------------------------------------------


def _contract(receiver: Receiver) -> list[Line]:
    if receiver.class_ is Class.TWO_STEP_COMMIT and receiver.prepares and receiver.commits:
        return [
            Line("prepare", f"{receiver.prepares.call}: lookup; a repeat {receiver.prepares.repeat}"),
            Line("commit", f"{receiver.commits.call}: natural; a repeat answers {receiver.commits.repeat}"),
        ]
    contract = receiver.contract
    lines = [Line("contract", contract.kind.value), Line("relied on", relied_on(receiver, contract))]
    if contract.kind in (Kind.KEYED, Kind.LOOKUP, Kind.NATURAL) and contract.asks_by:
        lines.append(Line("when asked", _asked(receiver, contract, lookup_of(receiver))))
    return lines


def relied_on(receiver: Receiver, contract: Contract) -> str:
    """The arithmetic of the window, in a sentence."""
    if receiver.token is not None:
        return _token(receiver.token, contract)
    match contract.kind:
        case Kind.NATURAL | Kind.SAME_TRANSACTION:
            return "a repeat does no harm, for as long as the object exists"
        case Kind.LOOKUP:
            return "nothing guards a repeat; it is asked for before anything is sent again"
        case Kind.OPAQUE if contract.at_least_once:
            return "nothing; the owner accepts a duplicate, so it is sent again"
        case Kind.OPAQUE:
            return "nothing; in doubt a person tells"
        case Kind.KEYED:
            return _keyed(receiver, contract)


def _keyed(receiver: Receiver, contract: Contract) -> str:
    margins, relied = contract.margins, span(contract.protected_seconds)
    if contract.bound is Bound.FOR_EVER:
        late = receiver.window.late is Late.REJECTED
        return "the key for ever: a late repeat is refused, not run again" if late else "the key for ever"
    if not contract.window_seconds:
        open_only = "the key protects only while what it names is open" if contract.bound is Bound.STATE else ""
        return f"{open_only or 'no window is known'}, so {relied} of it are relied on"
    bound = {Bound.AT_LEAST: "at least ", Bound.CONFIGURABLE: "by default "}.get(contract.bound, "")
    rest = margins.safety_seconds + margins.clock_skew_seconds
    text = (
        f"the key is kept {bound}{span(contract.window_seconds)}; relied on for {relied} from the first moment it may "
        f"have left ({margins.window_factor:g} of the window, and {rest:g} s before its end at the latest)"
    )
    short = f"; after a restart not at all, since it is under {span(margins.short_window_seconds)}"
    return text + (short if contract.is_short else "")


def _token(token: Token, contract: Contract) -> str:
    match token.mode:
        case TokenMode.REUSABLE | TokenMode.ROTATING_REUSABLE:
            return "the refresh token stays good, so the request may be repeated"
        case TokenMode.GRACE if token.grace_seconds:
            relied = span(contract.protected_seconds)
            return f"the used refresh token works for another {span(token.grace_seconds)}; relied on for {relied}"
        case _:
            return "the refresh token is spent by its use and is never sent twice"


def _asked(receiver: Receiver, contract: Contract, lookup: Lookup | None) -> str:
    margins = receiver.lookup_margins
    if lookup is not None and lookup.lag_seconds is not None:
        why = (
            f"{margins.documented_multiplier:g} times the documented {span(lookup.lag_seconds)}, and "
            f"{margins.floor_seconds:g} s at least"
        )
    else:
        why = f"no lag is documented for a {lookup.kind.value if lookup else LookupKind.LIST.value}"
    nos = f"{contract.margins.clear_nos} empty answers, one lag apart, prove that it did not happen"
    empty = nos if contract.absence else "an empty answer proves nothing"
    return f"by {contract.asks_by}; lag {span(contract.lag_seconds)} ({why}); {empty}"


def _in_doubt(receiver: Receiver) -> list[Line]:
    action = receiver.action
    first, later = ("within the window", "past it") if kind_of(receiver) is Kind.KEYED else ("first", "later")
    lines = [Line("in doubt", f"{first}: {DOES[action.within]}"), Line("in doubt", f"{later}: {DOES[action.past]}")]
    if action.past is action.within:
        lines = [Line("in doubt", DOES[action.within])]
    if action.after_5xx is not None:
        lines.append(Line("in doubt", f"after a 5xx: {DOES[action.after_5xx]}"))
    if action.changed is Do.NEW_INTENT:
        lines.append(Line("in doubt", DOES[Do.NEW_INTENT]))
    return [*lines, Line("in doubt", f"why: {action.why}")] if action.why else lines


# --- the facts --------------------------------------------------------------------------------------------------


def _key(receiver: Receiver) -> list[Line]:
    key, lines = receiver.key, list[Line]()
    if has_key(receiver) and receiver.class_ is not Class.TWO_STEP_COMMIT:
        contract = receiver.contract
        shape = f"{contract.prefix}{contract.shape}" + (f" of {contract.length}" if contract.length else "")
        limits = [
            f"{key.min_length} characters at least" if key.min_length else "",
            f"{key.max_length} at most" if key.max_length else "",
            "in quotes" if key.quoted else "",
        ]
        said = ", ".join([f"{key.place.value} {key.name}".strip(), *filter(None, limits)])
        lines.append(Line("key", f"{said}; sent as {shape}"))
    if key.also:
        lines.append(Line("key", f"or in {', '.join(key.also)}"))
    if key.text:
        lines.append(Line("key", key.text))
    if receiver.scope:
        lines.append(Line("bound to", ", ".join(receiver.scope)))
    if receiver.scope_text:
        lines.append(Line("bound to", receiver.scope_text))
    if receiver.window.text:
        lines.append(Line("window", receiver.window.text))
    if receiver.marks:
        lines.append(Line("carries our mark", receiver.marks))
    return lines


def _answers(receiver: Receiver) -> list[Line]:
    lines: list[Line] = []
    for answer in receiver.answers:
        status = "/".join(map(str, answer.status))
        code = " ".join(part for part in (status, *answer.codes) if part)
        bare = "the bare status is read as a refusal, which proves nothing after a lost answer"
        notes = (answer.ours and f"whose: {answer.ours}", answer.then, bare if is_ambiguous(answer) else "")
        means = answer.means.value.replace("_", " ")
        lines.append(Line("answers", "; ".join([f"{code}: {means}", *filter(None, notes)])))
    replay = receiver.replay
    stored = {"success": replay.success, "4xx": replay.refusals, "5xx": replay.errors}
    for known, words in ((Known.YES, "the first answer comes back"), (Known.NO, "it does not come back")):
        if which := [name for name, value in stored.items() if value is known]:
            lines.append(Line("a repeat", f"{words}: {', '.join(which)}"))
    texts = (f"answers: {replay.answers_with}" if replay.answers_with else "", replay.text)
    lines += [Line("a repeat", text) for text in texts if text]
    if receiver.marker is not None:
        mark = receiver.marker
        told = " ".join(part for part in (mark.place, mark.name) if part) + (f" = {mark.value}" if mark.value else "")
        lines.append(Line("a repeat", f"is told by {told}"))
    lines.append(
        Line("another payload", {"yes": "is noticed", "no": "is not noticed"}.get(receiver.payload_compared, "unknown"))
    )
    if receiver.payload_text:
        lines.append(Line("another payload", receiver.payload_text))
    lines.append(Line("both at once", receiver.in_flight.value.replace("_", " ")))
    return [*lines, Line("both at once", receiver.in_flight_text)] if receiver.in_flight_text else lines


def _lookups(receiver: Receiver) -> list[Line]:
    lines: list[Line] = []
    for lookup in receiver.lookups:
        proves = "shows all" if lookup.absence else "an empty answer proves nothing"
        text = f"by {lookup.by} ({lookup.kind}, {proves}): {lookup.how}" + (f"; {lookup.text}" if lookup.text else "")
        lines.append(Line("lookups", text))
    for undo in receiver.undo:
        notes = [undo.until, "with a key of its own" if undo.keyed is Known.YES else ""]
        lines.append(Line("undo", "; ".join(part for part in (undo.call, *notes) if part)))
    return lines


def _limits(receiver: Receiver) -> list[Line]:
    lines = [Line("beware", text) for text in receiver.pitfalls]
    for client in receiver.clients:
        sent = (
            f"{client.closed} closed, {client.reset} reset, {client.status_500} on a 500, {client.status_503} on a 503"
        )
        lines.append(
            Line("client", f"{client.package} {client.version} {client.call} sends {sent}; guard: {client.guard}")
        )
    return lines


def _sources(receiver: Receiver) -> list[Line]:
    level = receiver.level.value.replace("_", " ") + (f" ({receiver.level_text})" if receiver.level_text else "")
    checked = f", checked {receiver.checked}" if receiver.checked else ""
    lines = [Line("known from", f"{level}{checked}")]
    for source in receiver.sources:
        text = f"{source.ref} ({source.kind}, {source.dated})"
        lines.append(Line("known from", f"{text}; {source.text}" if source.text else text))
    return lines
