"""Whose a row is: a deliverer's while it lives and its claim lasts; a person's only while it is stuck."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot, UsageError, effect, keyed, outbox
from surefoot.outbox.claims import CLAIM_SECONDS, Claims
from surefoot.outbox.delivery import Outcome
from surefoot.testing.clock import FakeClock
from tests.outbox.conftest import Post
from tests.outbox.test_outbox_delivering import put, row_of
from tests.outbox.world import keyed_mail, opaque_mail, states


def test_what_a_live_deliverer_has_claimed_is_left_to_it(connect: Callable[[], Any], quick_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @effect(keyed(window=600), name="outbox.claimed")
    def claimed(attempt: Any) -> None:
        begun.set()
        assert may_end.wait(30)

    put(connect, claimed, id="r")
    with Surefoot(str(quick_path / "agents.db")) as sf, Surefoot(str(quick_path / "agents.db")) as other:
        thread = threading.Thread(target=outbox.deliver, args=(sf, connect))
        thread.start()
        assert begun.wait(30)
        assert outbox.deliver(other, connect) == outbox.Delivered(), "it looked at a row that is under way"
        assert row_of(connect, "r").claims == 1
        may_end.set()
        thread.join(30)
    assert states(connect) == {"r": "delivered"}


def test_a_deliverer_is_known_to_live_before_it_claims_anything(
    connect: Callable[[], Any], quick_path: Path, receiver: Post
) -> None:
    """Or another would take it for dead, and its first claims for free."""
    seen: list[bool] = []
    put(connect, keyed_mail, "known", id="r")
    with Surefoot(str(quick_path / "agents.db")) as sf, Surefoot(str(quick_path / "agents.db")) as other:

        def watched() -> Any:
            seen.append(other.store.is_gone(sf.engine.owner))
            return connect()

        assert outbox.deliver(sf, watched) == outbox.Delivered(delivered=1)
    assert seen == [False]


def test_a_deliverer_whose_claim_has_lapsed_changes_nothing_that_another_has(
    connect: Callable[[], Any], virtual: Surefoot, clock: FakeClock
) -> None:
    put(connect, keyed_mail, "lapsed", id="r")
    late, next_one = (Claims.over(connect(), virtual.engine) for _ in range(2))
    (lapsed,) = late.take(1)
    clock.advance(CLAIM_SECONDS + 1)
    (held,) = next_one.take(1, suspects=True)
    late.mark(lapsed, Outcome(state=outbox.State.WAITING, key="", reason="not now", again_seconds=3600.0))
    late.commit()
    row = row_of(connect, "r")
    assert (row.claims, row.reason, row.due_at) == (2, "", 0.0), "it put off what is another's"
    next_one.mark(held, Outcome(state=outbox.State.DELIVERED, key="k", receipt='"done"'))
    next_one.commit()
    late.mark(lapsed, Outcome(state=outbox.State.REFUSED, key="k", reason="too late"))
    late.commit()
    row = row_of(connect, "r")
    assert (row.state, row.receipt, row.reason) == (outbox.State.DELIVERED, '"done"', "")
    late.close()
    next_one.close()


def test_only_a_stuck_row_can_be_tried_again_or_given_up_by_hand(
    connect: Callable[[], Any], virtual: Surefoot, receiver: Post
) -> None:
    put(connect, keyed_mail, "by-hand", id="delivered")
    put(connect, opaque_mail, "by-hand-parked", fault="500", id="parked")
    outbox.deliver(virtual, connect)
    put(connect, keyed_mail, "by-hand-waiting", id="waiting")
    before, connection = states(connect), connect()
    for row in ("delivered", "parked", "waiting"):
        with pytest.raises(UsageError, match=f"is {row}, not stuck; nothing was changed"):
            outbox.retry(connection, row)
        with pytest.raises(UsageError, match=f"is {row}, not stuck; nothing was changed"):
            outbox.drop(connection, row, why="no longer wanted")
    connection.commit()
    connection.close()
    assert states(connect) == before == {name: name for name in before} and len(before) == 3
