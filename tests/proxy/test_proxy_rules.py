"""Who may use the proxy, where a request belongs, and what it answers for itself."""

from __future__ import annotations

import http.client
import http.server
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from surefoot import Surefoot, UsageError, workflow
from surefoot.proxy import Options
from surefoot.proxy.address import Address, prefix, read_address
from surefoot.proxy.options import read_promise, read_token_service, read_upstream
from surefoot.testing.forkserver import ForkServer
from surefoot.testing.models import Meets, ModelServer
from tests.proxy.conftest import Running, answer

pytestmark = pytest.mark.xdist_group("proxy-rules")
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CANARY = "sk-canary-0123456789abcdef"


def call(
    proxy: Running,
    path: str,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    body: Any = BODY,
) -> tuple[int, dict[str, str], Any]:
    """(status, headers, JSON) of one request."""
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=30)
    given = {"Content-Type": "application/json", "Authorization": f"Bearer {CANARY}", **(headers or {})}
    connection.request(method, path, json.dumps(body) if method == "POST" else None, given)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), json.loads(content or b"null")


CHAT = "/openai/v1/chat/completions"


def test_an_address_is_read_from_the_path_and_from_headers_which_win() -> None:
    path = f"{prefix(run='a b', attempt='1', scope='x/y')}/openai/v1/models/a%2Fb:go"
    assert read_address(path, {}) == Address(
        run="a b", attempt="1", scope="x/y", service="openai", rest="/v1/models/a%2Fb:go"
    )
    assert read_address(path, {"x-surefoot-run": "b"}).run == "b"
    assert read_address("/run/r", {}) == Address(run="r")
    assert read_address("/run", {}) == Address(service="run")
    with pytest.raises(UsageError):
        read_address("/run/a%0ab/openai/v1", {})


@pytest.mark.parametrize(
    "text", ["openai", "x=ftp://h", "x=https://u:p@h", "x=https://h?a=1", "run=https://h", "openai/=https://h"]
)
def test_a_service_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Options(upstreams=(read_upstream(text),))


def test_a_token_endpoint_says_what_it_promises() -> None:
    assert read_token_service("g=https://h/token").contract == read_promise("strict")
    assert read_token_service("g=https://h/token,grace:30").contract.grace_seconds == 30
    for wrong in ("grace:x", "no.such.receiver"):
        with pytest.raises((UsageError, KeyError)):
            read_promise(wrong)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com"])
def test_it_listens_to_others_only_with_a_key(host: str) -> None:
    with pytest.raises(UsageError, match="refused to listen"):
        Options(host=host)
    with pytest.raises(UsageError, match="16 characters"):
        Options(host=host, key="short")
    assert Options(host=host, key="0123456789abcdef").host == host


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "attacker.example"}, 403),
        ({"Host": "attacker.example:7878"}, 403),
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost:1"}, 200),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_a_page_in_a_browser_is_refused(
    models: ModelServer, proxies: Callable[..., Running], headers: dict[str, str], status: int, method: str
) -> None:
    path = f"/run/r/attempt/1{CHAT}" if method == "POST" else "/run/r"
    got, _, told = call(proxies(), path, method=method, headers=headers)
    assert got == (405 if status == 200 and method == "OPTIONS" else status), told
    assert len(models.paid()) == (status == 200 and method == "POST")


def test_with_a_key_nothing_is_answered_without_it(models: ModelServer, proxies: Callable[..., Running]) -> None:
    key = "a-key-of-24-characters!!"
    proxy = proxies(key=key)
    for headers in ({}, {"X-Surefoot-Key": "another-key-of-24-chars!"}):
        assert call(proxy, f"/run/r/attempt/1{CHAT}", headers=headers)[0] == 401
        assert call(proxy, "/run/r", method="DELETE", headers=headers)[0] == 401
    assert call(proxy, f"{prefix(key=key, run='r', attempt='1')}{CHAT}")[0] == 200
    assert call(proxy, f"/run/r/attempt/2{CHAT}", headers={"X-Surefoot-Key": key, "Host": "elsewhere"})[0] == 200
    assert len(models.paid()) == 1


def test_what_names_no_run_or_service_is_refused_and_nothing_is_sent(
    models: ModelServer, proxies: Callable[..., Running]
) -> None:
    proxy = proxies()
    for path, status, word in (
        (CHAT, 400, "names no run"),
        (f"/run/r/attempt/1/nobody{CHAT}", 404, "known: anthropic, gemini, openai"),
        (f"/run/%0a{CHAT}", 400, "control character"),
    ):
        got, _, told = call(proxy, path)
        assert got == status and word in told["error"]["message"]
    assert models.asks == []


def test_a_run_of_something_else_is_not_touched(folder: Path, proxies: Callable[..., Running]) -> None:
    @workflow
    def other() -> int:
        return 1

    db = str(folder / "other.db")
    with Surefoot(db) as sf:
        sf.run(other, id="taken")
    status, _, told = call(proxies(db), f"/run/taken/attempt/1{CHAT}")
    assert status == 409 and "choose another name" in told["error"]["message"]


def test_a_run_that_has_ended_answers_from_its_record_and_makes_no_new_call(
    models: ModelServer, proxies: Callable[..., Running]
) -> None:
    proxy = proxies()
    _, _, first = call(proxy, f"/run/r/attempt/1{CHAT}")
    assert call(proxy, "/run/r", method="DELETE")[2]["calls"] == 1
    status, headers, again = call(proxy, f"/run/r/attempt/2{CHAT}")
    assert (status, again) == (200, first) and headers["x-surefoot-replayed"] == "1"
    new = {**BODY, "messages": [{"role": "user", "content": "something new"}]}
    status, _, told = call(proxy, f"/run/r/attempt/2{CHAT}", body=new)
    assert status == 409 and "has ended" in told["error"]["message"]
    assert len(models.paid()) == 1
    assert call(proxy, "/run/r", method="DELETE")[2]["status"] == "ended"
    proxy.background.__exit__()
    with Surefoot(proxy.db) as sf:
        assert sf.get("r").status == "succeeded"


def test_a_run_is_open_in_one_proxy_at_a_time(models: ModelServer, proxies: Callable[..., Running]) -> None:
    one = proxies()
    other = proxies(one.db)
    _, _, first = call(one, f"/run/r/attempt/1{CHAT}")
    status, _, told = call(other, f"/run/r/attempt/1{CHAT}")
    assert status == 409 and "another proxy" in told["error"]["message"]
    one.background.__exit__()
    assert call(other, f"/run/r/attempt/2{CHAT}")[2] == first
    assert len(models.paid()) == 1


def test_an_attempt_that_leaves_its_recorded_path_is_stopped_before_anything_is_sent(
    models: ModelServer, proxies: Callable[..., Running]
) -> None:
    proxy = proxies()
    call(proxy, f"/run/r/attempt/1{CHAT}")
    changed = {**BODY, "messages": [{"role": "user", "content": "what time is it"}]}
    for body in (changed, BODY):  # and stays so
        status, headers, told = call(proxy, f"/run/r/attempt/2{CHAT}", body=body)
        assert (status, headers["x-surefoot-problem"]) == (409, "diverged")
        assert "what time is it" in told["error"]["message"]
    assert call(proxy, f"/run/r/attempt/3/scope/other{CHAT}", body=changed)[0] == 200
    assert call(proxy, "/run/r", method="GET")[2]["diverged"] != []
    assert len(models.paid()) == 2


def test_a_sibling_that_comes_first_waits_for_the_others_to_read_theirs(
    models: ModelServer, proxies: Callable[..., Running]
) -> None:
    proxy = proxies(patience_seconds=30.0)
    call(proxy, f"/run/r/attempt/1{CHAT}")
    new = {**BODY, "messages": [{"role": "user", "content": "the one that was lost"}]}
    got: list[int] = []
    late = threading.Thread(target=lambda: got.append(call(proxy, f"/run/r/attempt/2{CHAT}", body=new)[0]))
    late.start()
    while call(proxy, "/run/r", method="GET")[2]["attempts"] < 2:
        continue
    assert call(proxy, f"/run/r/attempt/2{CHAT}")[0] == 200
    late.join(30)
    assert got == [200] and len(models.paid()) == 2


def test_agents_that_ask_for_the_same_thing_at_once_share_one_call(
    agents: ForkServer, folder: Path, proxies: Callable[..., Running]
) -> None:
    let = threading.Event()

    def hold(when: str, number: int, connection: Any) -> bool:
        assert let.wait(60)
        return False

    with ModelServer(answer, record=folder / "at-once.jsonl", boundary=hold) as models:
        proxy = proxies(upstreams=(read_upstream(f"openai={models.url}"),))
        children = [agents.start("at_once", proxy.base("r", f"{number}")) for number in range(8)]
        while call(proxy, "/run/r", method="GET")[2]["attempts"] < 8:
            continue
        let.set()
        assert [child.join() for child in children] == [0] * 8
        assert len({line for child in children for line in child.lines}) == 1
        assert len(models.asks) == len(models.paid()) == 1


def test_a_failed_try_is_told_and_the_next_one_may_succeed(
    models: ModelServer, proxies: Callable[..., Running]
) -> None:
    proxy = proxies()
    models.at(1, Meets(error=429, retry_after=7))
    status, headers, _ = call(proxy, f"/run/r/attempt/1{CHAT}")
    assert status == 429 and headers["retry-after"] == "7"
    assert call(proxy, f"/run/r/attempt/1{CHAT}")[0] == 200
    assert call(proxy, f"/run/r/attempt/2{CHAT}")[0] == 200, "a retry made it good"
    assert len(models.asks) == 2


def test_a_failure_that_the_agent_acted_on_is_told_again_and_not_waited_for(
    models: ModelServer, proxies: Callable[..., Running]
) -> None:
    proxy = proxies()
    models.at(1, Meets(error=503, retry_after=7))
    backup = {**BODY, "model": "backup"}
    for attempt in (1, 2):
        status, headers, _ = call(proxy, f"/run/r/attempt/{attempt}{CHAT}")
        assert status == 503
        assert call(proxy, f"/run/r/attempt/{attempt}{CHAT}", body=backup)[0] == 200
    assert headers["retry-after-ms"] == "1" and "retry-after" not in headers
    assert len(models.asks) == 2


def test_a_service_that_cannot_be_reached_is_said_so(folder: Path, proxies: Callable[..., Running]) -> None:
    proxy = proxies(upstreams=(read_upstream("openai=http://127.0.0.1:1"),))
    status, _, told = call(proxy, f"/run/r/attempt/1{CHAT}")
    assert status == 502 and "did not answer (ConnectError)" in told["error"]["message"]


def test_what_is_no_model_call_is_passed_on_and_counted(models: ModelServer, proxies: Callable[..., Running]) -> None:
    proxy = proxies()
    assert call(proxy, "/run/r/attempt/1/openai/-/nothing", method="GET")[0] == 404  # the service's own answer
    assert call(proxy, "/run/r", method="GET")[2]["unrecorded"] == 1


def test_no_credential_of_the_agent_is_in_the_store(models: ModelServer, proxies: Callable[..., Running]) -> None:
    proxy = proxies()
    models.at(1, Meets(error=401))
    call(proxy, f"/run/r/attempt/1{CHAT}", headers={"X-Api-Key": CANARY, "Cookie": f"a={CANARY}"})
    call(proxy, f"/run/r/attempt/1{CHAT}?key={CANARY}")
    proxy.background.__exit__()
    files = [path for path in Path(proxy.db).parent.glob(f"{Path(proxy.db).name}*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert b"call:m:" in content and CANARY.encode() not in content


class Quoting(http.server.BaseHTTPRequestHandler):
    """A service that quotes the credential which it refuses."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        content = json.dumps(
            {"error": {"message": f"no such key: {self.headers['Authorization']} {self.path}"}}
        ).encode()
        self.wfile.write(b"HTTP/1.0 401 -\r\nContent-Type: application/json\r\n\r\n" + content)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.mark.parametrize("query", ["", f"?alt=json&key={CANARY}"], ids=["header", "query"])
def test_a_credential_that_a_service_quotes_is_told_and_not_kept(proxies: Callable[..., Running], query: str) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Quoting) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        proxy = proxies(upstreams=(read_upstream(f"openai=http://127.0.0.1:{service.server_port}"),))
        given = {"Authorization": "none"} if query else {}
        status, _, told = call(proxy, f"/run/r/attempt/1{CHAT}{query}", headers=given)
        service.shutdown()
    assert status == 401 and CANARY in told["error"]["message"]
    proxy.background.__exit__()
    files = [path for path in Path(proxy.db).parent.glob(f"{Path(proxy.db).name}*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert b"[hidden]" in content and CANARY.encode() not in content


def test_a_proxy_that_is_closed_gives_its_runs_back(models: ModelServer, proxies: Callable[..., Running]) -> None:
    proxy = proxies()
    call(proxy, f"/run/r/attempt/1{CHAT}")
    proxy.background.__exit__()
    with Surefoot(proxy.db) as sf:
        assert sf.get("r").status == "pending"
