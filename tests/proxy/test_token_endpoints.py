"""Rotating refresh tokens behind the proxy: replicas at once, three places to die, and the one case that stays open."""

from __future__ import annotations

import base64
import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot
from surefoot.core.effect import Status
from surefoot.proxy.options import TokenService, read_promise
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.ledger import Line, read_ledger
from surefoot.testing.oauth import EndpointError, Fault, authorize, exchange, use
from tests.proxy.conftest import Running

KEY = base64.b64encode(bytes(range(32))).decode()
PROMISES = {"strict": "strict", "grace": "grace:600", "family_revocation": "strict"}
pytestmark = pytest.mark.xdist_group("proxy-tokens")


class Provider:
    """A token endpoint in a process of its own, with a ledger that is on disk before an answer leaves."""

    def __init__(self, folder: Path, promise: str) -> None:
        self.promise, self.path = promise, folder / f"provider-{promise}.jsonl"
        command = [sys.executable, "-m", "surefoot.testing.oauth", str(self.path), promise, "3600", "3600", "600"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def service(self) -> TokenService:
        return TokenService(name="token", url=f"{self.url}/token", contract=read_promise(PROMISES[self.promise]))

    def whats(self, family: str) -> Counter[str]:
        """What it did, by kind."""
        return Counter(line.what for line in self.lines(family))

    def lines(self, family: str) -> list[Line]:
        return [line for line in read_ledger(self.path) if line.name == family]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0


@pytest.fixture(scope="module")
def providers(folder: Path) -> Iterator[Callable[[str], Provider]]:
    made: dict[str, Provider] = {}

    def get(promise: str) -> Provider:
        return made.setdefault(promise, made.get(promise) or Provider(folder, promise))

    yield get
    for each in made.values():
        each.close()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_SECRET_KEY", KEY)


def sign_in(provider: Provider, folder: Path, family: str) -> tuple[str, str]:
    """A person signs in; (where the service keeps its tokens, the refresh token)."""
    store, token = folder / f"{family}.json", authorize(provider.port, family)
    store.write_text(json.dumps(token))
    return str(store), token["refresh_token"]


def as_read_by(store: str, count: int) -> list[str]:
    """What so many replicas read before any of them refreshed, however late a busy machine starts one."""
    return [shutil.copy(store, f"{store}-{number}") for number in range(count)]


def port_of(proxy: Running) -> int:
    return int(proxy.url.rpartition(":")[2])


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("promise", ["strict", "grace", "family_revocation"])
def test_replicas_that_refresh_at_once_make_one_exchange_and_none_of_them_fails(
    agents: ForkServer,
    folder: Path,
    providers: Callable[[str], Provider],
    proxies: Callable[..., Running],
    promise: str,
    count: int,
) -> None:
    provider, family = providers(promise), f"{promise}-{count}"
    proxy = proxies(tokens=(provider.service(),))
    store, _ = sign_in(provider, folder, family)
    url = f"{proxy.url}/token"
    replicas = [agents.start("refresh", url, f"{provider.url}/use", read, 8, 8) for read in as_read_by(store, count)]
    assert [replica.join() for replica in replicas] == [0] * count
    assert [replica.lines for replica in replicas] == [[" ".join(["200"] * 8)]] * count
    assert provider.whats(family) == {"exchanged": 1, "served": 8 * count}


def test_replicas_without_the_proxy_fail_at_a_strict_provider(
    agents: ForkServer, folder: Path, providers: Callable[[str], Provider]
) -> None:
    provider = providers("strict")
    store, used = sign_in(provider, folder, "direct")
    exchange(provider.port, used, timeout=10)  # the other replica was first
    late = agents.start("refresh", f"{provider.url}/token", f"{provider.url}/use", store, 1, 1)
    assert late.join() == 0 and late.lines == ["failed"]


@pytest.mark.parametrize("when", ["sent", "received", "between"])
@pytest.mark.parametrize("promise", ["strict", "grace", "family_revocation"])
def test_a_service_that_dies_with_a_refresh_goes_on_where_it_was(
    agents: ForkServer,
    folder: Path,
    providers: Callable[[str], Provider],
    proxies: Callable[..., Running],
    promise: str,
    when: str,
) -> None:
    """Killed with the reply on its way, with the reply in hand, and between its two writes."""
    provider, family = providers(promise), f"{promise}-{when}"
    proxy = proxies(tokens=(provider.service(),))
    store, _ = sign_in(provider, folder, family)
    url, used_at = f"{proxy.url}/token", f"{provider.url}/use"
    killed = agents.start("refresh", url, used_at, store, 1, 1, when)
    assert killed.join() == -signal.SIGKILL
    stores = as_read_by(store, 2)
    others = [agents.start("refresh", url, used_at, read, 2, 2) for read in stores]
    assert [other.join() for other in others] == [0, 0]
    assert [other.lines for other in others] == [["200 200"]] * 2, "a request failed"
    assert provider.whats(family)["exchanged"] == 1
    later = agents.start("refresh", url, used_at, stores[0], 1, 1)  # one more expiry
    assert later.join() == 0 and later.lines == ["200"], "the authorization is broken"
    assert provider.whats(family)["refused"] == 0


def test_without_the_proxy_a_lost_reply_breaks_the_authorization(
    agents: ForkServer, folder: Path, providers: Callable[[str], Provider]
) -> None:
    provider = providers("strict")
    store, _ = sign_in(provider, folder, "direct-lost")
    killed = agents.start("refresh", f"{provider.url}/token", f"{provider.url}/use", store, 1, 1, "received")
    assert killed.join() == -signal.SIGKILL
    again = agents.start("refresh", f"{provider.url}/token", f"{provider.url}/use", store, 1, 1)
    assert again.join() == 0 and again.lines == ["failed"]


def test_a_reply_that_never_reaches_the_proxy_is_the_case_that_stays_open_at_a_strict_provider(
    folder: Path, providers: Callable[[str], Provider], proxies: Callable[..., Running]
) -> None:
    """It is not sent again by itself: it is parked, and a person is told what to do."""
    provider = providers("strict")
    _, token = sign_in(provider, folder, "lost")
    proxy = proxies(tokens=(provider.service(),))
    for _ in range(2):
        with pytest.raises(EndpointError) as told:
            exchange(port_of(proxy), token, timeout=60, fault=Fault.ERROR)
        assert told.value.status_code == 503 and told.value.body["error"] == "temporarily_unavailable"
        assert "surefoot resolve - " in told.value.body["error_description"]
    assert provider.whats("lost") == {"exchanged": 1}
    proxy.background.__exit__()
    with Surefoot(proxy.db) as sf:
        parked = sf.store.find_effects((Status.PARKED,))
    assert [each.name for each in parked] == ["proxy.token"]


def test_within_a_grace_window_a_reply_that_was_lost_is_asked_for_again(
    folder: Path, providers: Callable[[str], Provider], proxies: Callable[..., Running]
) -> None:
    provider = providers("grace")
    _, token = sign_in(provider, folder, "healed")
    proxy = proxies(tokens=(provider.service(),))
    fresh = exchange(port_of(proxy), token, timeout=60, fault=Fault.NONE)
    assert use(provider.port, fresh["access_token"]) == 200


def test_what_the_provider_refuses_for_now_is_passed_on_and_may_be_tried_again(
    folder: Path, providers: Callable[[str], Provider], proxies: Callable[..., Running]
) -> None:
    provider = providers("strict")
    _, token = sign_in(provider, folder, "for-now")
    proxy = proxies(tokens=(provider.service(),))
    for fault, status in ((Fault.TOO_MANY, 429), (Fault.CLIENT, 401), (Fault.TOO_MANY, 429)):
        with pytest.raises(EndpointError) as told:
            exchange(port_of(proxy), token, timeout=60, fault=fault)
        assert told.value.status_code == status
    first = exchange(port_of(proxy), token, timeout=60)
    assert exchange(port_of(proxy), token, timeout=60) == first
    assert provider.whats("for-now") == {"exchanged": 1}


def test_a_token_that_is_dead_stays_dead_and_is_not_asked_for_again(
    folder: Path, providers: Callable[[str], Provider], proxies: Callable[..., Running]
) -> None:
    provider = providers("strict")
    _, token = sign_in(provider, folder, "dead")
    exchange(provider.port, token, timeout=10)
    proxy = proxies(tokens=(provider.service(),))
    for _ in range(3):
        with pytest.raises(EndpointError) as told:
            exchange(port_of(proxy), token, timeout=60)
        assert (told.value.status_code, told.value.body["error"]) == (400, "invalid_grant")
    assert provider.whats("dead") == {"exchanged": 1, "refused": 1}


def test_two_proxies_on_one_store_make_one_exchange(
    folder: Path, providers: Callable[[str], Provider], proxies: Callable[..., Running]
) -> None:
    provider = providers("strict")
    _, token = sign_in(provider, folder, "two-proxies")
    one = proxies(tokens=(provider.service(),))
    other = proxies(one.db, tokens=(provider.service(),))
    first = exchange(port_of(one), token, timeout=60)
    assert exchange(port_of(other), token, timeout=60)["access_token"] == first["access_token"]
    assert provider.whats("two-proxies") == {"exchanged": 1}


def test_no_token_is_in_the_store_in_clear(
    folder: Path, providers: Callable[[str], Provider], proxies: Callable[..., Running]
) -> None:
    provider = providers("strict")
    _, token = sign_in(provider, folder, "sealed")
    proxy = proxies(tokens=(provider.service(),))
    fresh: dict[str, Any] = exchange(port_of(proxy), token, timeout=60)
    proxy.background.__exit__()
    files = [path for path in Path(proxy.db).parent.glob(f"{Path(proxy.db).name}*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert b"proxy.token" in content
    for secret in (token, fresh["access_token"], fresh["refresh_token"]):
        assert secret.encode() not in content


def test_proxies_on_one_postgresql_make_one_exchange_for_replicas_that_ask_at_once(
    agents: ForkServer,
    folder: Path,
    providers: Callable[[str], Provider],
    proxies: Callable[..., Running],
    postgres_url: str,
) -> None:
    """Each replica behind a proxy of its own, as on two machines."""
    provider, family = providers("family_revocation"), "machines"
    store, _ = sign_in(provider, folder, family)
    urls = [f"{proxies(postgres_url, tokens=(provider.service(),)).url}/token" for _ in range(2)]
    replicas = [agents.start("refresh", url, f"{provider.url}/use", store, 4, 4) for url in urls]
    assert [replica.join() for replica in replicas] == [0, 0]
    assert [replica.lines for replica in replicas] == [["200 200 200 200"]] * 2
    assert provider.whats(family) == {"exchanged": 1, "served": 8}
