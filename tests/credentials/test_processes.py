"""Many processes and one refresh token: one exchange a generation, and no token in use that is not good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.testing.forkserver import ForkServer
from tests.credentials.conftest import Endpoint

USES, EVERY = 20, 4
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("promise", ["family_revocation", "strict"])
def test_processes_that_ask_at_once_share_one_exchange_a_generation(
    server: ForkServer, folder: Path, endpoints: Callable[..., Endpoint], promise: str, count: int
) -> None:
    """Where a second use of a refresh token ends everything, so that one too many cannot stay unseen."""
    endpoint, db, name = endpoints(promise, told_seconds=0.4), str(folder / f"{promise}-{count}.db"), f"fleet-{count}"
    assert server.start("connect", db, endpoint.port, name, promise).join() == 0
    children = [server.start("fleet", db, endpoint.port, name, promise, USES, EVERY) for _ in range(count)]
    assert [child.join() for child in children] == [0] * count, [child.lines for child in children]
    assert [child.lines for child in children] == [[" ".join(["200"] * USES)]] * count
    whats = Counter(line.what for line in endpoint.lines(name))
    exchanges = Counter(line.key for line in endpoint.lines(name) if line.what == "exchanged")
    assert len(exchanges) >= USES // EVERY, f"only {len(exchanges)} generations: nobody had to compete"
    assert set(exchanges.values()) == {1}, "a refresh token was used twice"
    assert whats == {"exchanged": len(exchanges), "served": count * USES}
