"""An approval link: looking decides nothing, a good signature decides once, and anything else writes nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot import ApprovalClosed, Surefoot, UsageError, approve, workflow
from surefoot.core.errors import StoreError
from surefoot.runtime.approval_links import Link, sign
from surefoot.web import approval_app
from tests.approvals.support import WITHIN, Bystander, pay, sent, until
from tests.runtime.support import restart

BASE = "https://ops.example/approvals"
SECRET = "sixteen bytes and some more"
YES, NO = {"decision": "approve"}, {"decision": "deny", "why": "too much"}
Ask = Callable[..., httpx.Response]


def ask_of(sf: Surefoot, url: str) -> Ask:
    """Requests to this link, answered by the application itself; a POST sends its form."""
    app: Any = approval_app(sf, SECRET)

    async def request(method: str, url: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app, raise_app_exceptions=True)) as client:
            return await client.request(method, url, **options)

    def ask(method: str, form: dict[str, str] | None = None, *, at: str = url, **options: Any) -> httpx.Response:
        return asyncio.run(request(method, at, data=form, **options))

    return ask


def visited(sf: Surefoot, clock: Bystander, visit: Callable[[str], object], work: Any = None) -> Any:
    """Run `pay` and, while it asks, visit with a link to it; then approve, if that is left to do. Gives the result."""

    def both() -> None:
        (view,) = sf.approvals()
        visit(sf.approval_link(view.id, BASE, SECRET))
        if sf.approvals() and sf.approvals()[0].status == "pending":
            sf.approve(view.id, who="ann", digest=view.digest)

    clock.acts = [both]
    return sf.run(work, id="r") if work else sf.run(pay, "ch_1", 10, 10, id="r")


def mail(sf: Surefoot) -> int:
    return len(sf.store.board.read_mail("r"))


def test_a_scanner_that_fetches_every_link_decides_nothing(sf: Surefoot, clock: Bystander) -> None:
    def scan(url: str) -> None:
        ask = ask_of(sf, url)
        for method in ("GET", "HEAD") * 10:
            assert ask(method).status_code == 200
        for form in (YES, NO):
            assert ask("GET", at=f"{url}?{httpx.QueryParams(form)}").status_code == 200
        assert ask("HEAD").content == b"" and int(ask("HEAD").headers["content-length"]) > 1000
        for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
            answer = ask(method)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
        assert mail(sf) == 0 and sf.approvals()[0].status == "pending"

    assert visited(sf, clock, scan) == 10


def test_the_page_shows_exactly_what_is_asked_for_and_is_closed_to_others(sf: Surefoot, clock: Bystander) -> None:
    nasty = {"<script>": "</pre><img src=x onerror=alert(1)>", "hidden": "10\u202e00\u200b0", "lines": "a\nb"}
    pages: list[httpx.Response] = []

    @workflow
    def work() -> None:
        approve(nasty, by="<b>cfo</b>", within=WITHIN)

    restart()
    visited(sf, clock, lambda url: pages.append(ask_of(sf, url)("GET")), work)
    page, headers = pages[0].text, pages[0].headers
    assert "<script" not in page and "<img" not in page and "<b>cfo" not in page
    assert "&lt;script&gt;" in page and "\u202e" not in page and "10\\u202e00\\u200b0" in page
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-robots-tag"] == "noindex, nofollow" and headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer" and headers["x-content-type-options"] == "nosniff"
    assert "http://" not in page and "https://" not in page, "nothing is loaded from anywhere"


def test_the_form_approves_as_the_person_whom_the_link_names(sf: Surefoot, clock: Bystander) -> None:
    def click(url: str) -> None:
        answer = ask_of(sf, url)("POST", {**YES, "why": "looks <right>"})
        assert answer.status_code == 200 and "cfo has approved this" in answer.text
        assert "looks &lt;right&gt;" in answer.text and "<form" not in answer.text
        for form in (YES, NO):
            again = ask_of(sf, url)("POST", form)
            assert again.status_code == 409 and "cfo has approved it already" in again.text
        assert "cfo has approved this" in ask_of(sf, url)("GET").text

    assert visited(sf, clock, click) == 10
    assert mail(sf) == 1 and len(sent) == 1


def test_a_denial_needs_its_reason(sf: Surefoot, clock: Bystander) -> None:
    def click(url: str) -> None:
        answer = ask_of(sf, url)("POST", {"decision": "deny", "why": " "})
        assert answer.status_code == 400 and "a denial needs its reason" in answer.text and mail(sf) == 0
        assert ask_of(sf, url)("POST", NO).status_code == 200

    with pytest.raises(Exception, match="denied by cfo: too much"):
        visited(sf, clock, click)
    assert sent == []


def test_a_link_that_was_changed_anywhere_decides_nothing(sf: Surefoot, clock: Bystander) -> None:
    def forge(url: str) -> None:
        place, _, token = url.rpartition("/")
        changed = {
            token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :] for at in range(0, len(token), 3)
        } | {
            token[:-1],
            token + "A",
            token + "=",
            token.partition(".")[0],
            "." + token.partition(".")[2],
            "",
            "x.y",
            "é",
        }
        for each in sorted(changed):
            answer = ask_of(sf, url)("POST", YES, at=f"{place}/{each}")
            assert answer.status_code == 403 and "does not work" in answer.text, each
        assert mail(sf) == 0

    assert visited(sf, clock, forge) == 10


@pytest.mark.parametrize("changed", ["secret", "digest", "id", "run", "until"])
def test_a_signed_link_that_does_not_fit_decides_nothing(changed: str, sf: Surefoot, clock: Bystander) -> None:
    def forge(url: str) -> None:
        (view,) = sf.approvals()
        said = {"id": view.id, "run": "r", "digest": view.digest, "who": "cfo", "until": view.until}
        said |= {"digest": "0" * 32} if changed == "digest" else {}
        said |= {changed: "other"} if changed in ("id", "run") else {}
        said |= {"until": clock.now()} if changed == "until" else {}
        key = b"another secret of sixteen" if changed == "secret" else SECRET.encode()
        token = sign(Link(**said), key)
        for method, form in (("GET", None), ("POST", YES)):
            answer = ask_of(sf, url)(method, form, at=f"{BASE}/{token}")
            assert answer.status_code == {"secret": 403, "until": 403, "digest": 409}.get(changed, 404)
        assert mail(sf) == 0

    assert visited(sf, clock, forge) == 10


def test_an_expired_link_decides_nothing(sf: Surefoot, clock: Bystander) -> None:
    def wait(url: str) -> None:
        (view,) = sf.approvals()
        short = sf.approval_link(view.id, BASE, SECRET, who="bob", within=timedelta(seconds=5))
        assert ask_of(sf, short)("GET").status_code == 200
        clock.time += 5
        assert ask_of(sf, short)("POST", YES).status_code == 403
        assert ask_of(sf, url)("GET").status_code == 200, "the other is good for as long as the approval"
        clock.time += WITHIN
        assert ask_of(sf, url)("POST", YES).status_code == 403 and mail(sf) == 0
        with pytest.raises(ApprovalClosed, match="it is expired"):
            sf.approval_link(view.id, BASE, SECRET)

    with pytest.raises(Exception, match="nobody decided in time"):
        visited(sf, clock, wait)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"content": b'{"decision":"approve"}', "headers": {"content-type": "application/json"}}, 415),
        ({"content": b"decision=approve"}, 415),
        ({"form": {}}, 415),
        ({"form": {"decision": "maybe"}}, 400),
        ({"form": {"why": "yes"}}, 400),
        ({"content": b"decision=approve&decision=deny"}, 400),
        ({"content": b"decision=%ff"}, 400),
        ({"content": b""}, 400),
        ({"content": b"why=" + b"x" * 70_000 + b"&decision=approve"}, 413),
        ({"content": b"&".join(b"decision=approve" for _ in range(20))}, 400),
    ],
)
def test_a_form_that_is_not_ours_decides_nothing(
    options: dict[str, Any], status: int, sf: Surefoot, clock: Bystander
) -> None:
    given = dict(options)
    if "content" in given and status != 415:
        given["headers"] = {"content-type": "application/x-www-form-urlencoded"}

    def post(url: str) -> None:
        assert ask_of(sf, url)("POST", given.pop("form", None), **given).status_code == status
        assert mail(sf) == 0

    assert visited(sf, clock, post) == 10


def test_a_store_that_fails_is_said_so(sf: Surefoot, clock: Bystander, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str) -> None:
        def broken(run_id: str) -> Any:
            raise StoreError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(sf.store, "read_run", broken)
            assert ask_of(sf, url)("POST", YES).status_code == 503

    assert visited(sf, clock, fail) == 10


def test_what_a_link_is_made_of_is_checked(sf: Surefoot, clock: Bystander) -> None:
    def wrong(url: str) -> None:
        (view,) = sf.approvals()
        for base in ("ops.example", "ftp://x", "https://x/?a=b", "https://x/#a", None):
            with pytest.raises(UsageError, match="base_url"):
                sf.approval_link(view.id, base, SECRET)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="16 at least"):
            sf.approval_link(view.id, BASE, "short")
        with pytest.raises(UsageError, match="more than 0 to 100 years"):
            sf.approval_link(view.id, BASE, SECRET, within=0)
        assert sf.approval_link(view.id, BASE + "/", SECRET.encode()) == url

    assert visited(sf, clock, wrong) == 10
    with pytest.raises(UsageError, match="16 at least"):
        approval_app(sf, "")
    for no_secret in (None, 32, bytearray(32)):
        with pytest.raises(UsageError, match="must be str or bytes, found"):
            approval_app(sf, no_secret)  # type: ignore[arg-type]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Surefoot, str]]:
    import uvicorn

    with Surefoot(tmp_path / "agents.db") as sf, socket.create_server(("127.0.0.1", 0)) as listener:
        app: Any = approval_app(sf, SECRET)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield sf, f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def test_behind_a_real_server_a_click_lets_the_run_go_on(served: tuple[Surefoot, str]) -> None:
    sf, base = served
    handle = sf.start(pay, "ch_1", 10, 10, id="r")
    url = sf.approval_link(until(sf.approvals)[0].id, base, SECRET, who="carol")
    assert httpx.get(url).status_code == 200
    assert "carol has approved this" in httpx.post(url, data=YES).text
    assert handle.result(10) == 10 and sent == [{"charge": "ch_1", "amount": 10}]
