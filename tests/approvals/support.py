"""What the tests of approvals share: an effect that needs approval, a receiver's ledger, and a person who stands by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from surefoot import Surefoot, approve, effect, keyed, workflow
from surefoot.core.errors import NotApproved
from tests.runtime.support import FakeClock

T = TypeVar("T")
sent: list[dict[str, Any]] = []
"""What the receiver was asked to do, in order."""

WITHIN = 60.0


class Bystander(FakeClock):
    """Time that passes only by sleeping; whoever waits is visited by the next person in `acts`."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[Callable[[], object]] = []

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.acts:
            self.acts.pop(0)()


@effect(keyed(window=3600), needs_approval=True)
def refund(attempt: Any, charge: str, amount: int) -> int:
    sent.append({"charge": charge, "amount": amount})
    return amount


@effect(keyed(window=3600), needs_approval=True)
def payout(attempt: Any, charge: str, amount: int) -> int:
    sent.append({"payout": charge, "amount": amount})
    return amount


@effect(keyed(window=3600), needs_approval="body")
def mail(attempt: Any, to: str, body: dict[str, str]) -> str:
    sent.append({"to": to, "body": body})
    return to


@effect(keyed(window=3600))
def ticket(attempt: Any, title: str) -> str:
    sent.append({"title": title})
    return title


@workflow
def pay(charge: str, approved: int, executed: int) -> int:
    approve(refund.request(charge, amount=approved), by="cfo", within=WITHIN)
    return refund(charge, executed)


@workflow
async def pay_async(charge: str, approved: int, executed: int) -> int:
    await approve(refund.request(charge, amount=approved), by="cfo", within=WITHIN)
    return refund(charge, executed)


def approve_all(sf: Surefoot, who: str = "ann") -> None:
    """Approve whatever is asked for, as it was shown."""
    for view in sf.approvals():
        sf.approve(view.id, who=who, digest=view.digest)


def until(look: Callable[[], T]) -> T:
    """What `look` finds, once it finds something; AssertionError after half a minute without."""
    end = time.monotonic() + 30
    while not (found := look()):
        assert time.monotonic() < end, "it was never to be seen"
        time.sleep(0.002)
    return found


def refused(act: Callable[[], object]) -> NotApproved:
    """The refusal that `act` ends with; it must be one."""
    try:
        result = act()
    except NotApproved as error:
        return error
    raise AssertionError(f"nothing was refused: {result!r}")
