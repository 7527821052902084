"""The receiver of the model: what it did, what it remembers, what it shows, and what may still be on its way to it.

`Receiver` = (performed, known, since, glitched). Performed is counted as far as two, which is the mistake. `known` is
what stands under the key: "", "done", "refused", or "foreign" when somebody else's object holds the name. A receiver
that forgets does so at the first moment at which it may. One lookup in its life may come from a stale replica.
"""

from __future__ import annotations

from collections.abc import Iterator

from surefoot.core.contract import Kind

from .records import LAG_TICKS, NOW, TICK, WINDOW_TICKS, Setting, older

Receiver = tuple[int, str, float, bool]
Request = tuple[float, int, bool, int]
"""A request on its way: deadline (0.0: it may be late for ever), who waits for its answer (-1: nobody), whether it
carries the key of its identity, and which of the two requests it is."""

UNTOUCHED: Receiver = (0, "", 0.0, False)


def arrive(setting: Setting, receiver: Receiver, request: Request) -> Iterator[tuple[str, Receiver]]:
    """Everything that the receiver may do with a request, with its answer."""
    performed, known, _, glitched = receiver
    done = (performed + 1 if setting.performs_again else 1, "done", NOW, glitched)
    right_key = request[2]
    if setting.dedupes and known and right_key:
        yield ("landed" if known == "done" else "refused"), receiver
        return
    if setting.contract.kind is Kind.NATURAL:
        yield from _arrive_natural(setting, receiver)
        return
    yield "landed", (min(done[0], 2), *done[1:])
    if setting.contract.stores_refusals and right_key:
        yield "refused", (performed, "refused", NOW, glitched)
    else:
        yield "refused", receiver


def _arrive_natural(setting: Setting, receiver: Receiver) -> Iterator[tuple[str, Receiver]]:
    performed, known, _, glitched = receiver
    if known == "foreign":
        yield "exists", receiver
        return
    yield "landed", receiver if performed else (1, "done", NOW, glitched)
    yield "refused", receiver
    if performed:
        yield "exists", receiver
    elif setting.has_foreign:
        yield "exists", (0, "foreign", 0.0, glitched)


def show(setting: Setting, receiver: Receiver) -> Iterator[tuple[str, Receiver]]:
    """Everything that a lookup may bring back."""
    performed, known, since, glitched = receiver
    if not performed:
        yield "absent", receiver
    else:
        yield "found", receiver
        if since > NOW - LAG_TICKS * TICK:
            yield "absent", receiver
        elif not glitched:
            yield "absent", (performed, known, since, True)
    for found in setting.also_shows:
        yield found, receiver


def age_receiver(setting: Setting, receiver: Receiver) -> Receiver:
    """The receiver one tick later; a key whose window is over is forgotten."""
    performed, known, since, glitched = receiver
    keyed = setting.contract.kind is Kind.KEYED
    since = older(since, WINDOW_TICKS if keyed else LAG_TICKS)
    if keyed and known and since <= NOW - WINDOW_TICKS * TICK:
        known = ""
    if not (keyed or setting.can_ask):
        since = 0.0
    return performed, known, since, glitched


def age_network(network: tuple[Request, ...]) -> tuple[Request, ...]:
    """What is on its way one tick later; what had to arrive and did not is lost."""
    aged = ((deadline and deadline - TICK, *rest) for deadline, *rest in network)
    return tuple(sorted(r for r in aged if not r[0] or r[0] >= NOW))  # type: ignore[misc]
