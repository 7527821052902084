"""Recorded once against real services, then crashed on the recording: nobody is called again."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from surefoot.crashtest.api import Report, crash
from surefoot.crashtest.errors import CrashtestError
from surefoot.crashtest.main import run
from surefoot.crashtest.services.recording import exchange_of, read_recording
from surefoot.testing.models import ModelServer, replies
from surefoot.testing.twins.messages import Call, Page
from tests.crashtest.world import place


class RealShop(ThreadingHTTPServer):
    """Somebody's real service: it counts who calls it, and its answers are new each time."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.calls = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, RealShop)
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls += 1
        body = json.dumps({"id": f"real_{self.server.calls}", "paid": True}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "session=secret")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def shop() -> Iterator[RealShop]:
    with RealShop() as server:
        yield server
        server.shutdown()


def configured(folder: Path, shop: RealShop, model: str, twin: str = "") -> Path:
    file = folder / "crashtest.toml"
    file.write_text(
        f'command = ["{sys.executable}", "charging.py"]\nanswer = "order 81 is paid"\nwindows = ["effect"]\n'
        f'[services.model]\nkind = "upstream"\nmodel = true\nurl = "{model}"\nenv = {{ OPENAI_BASE_URL = "/v1" }}\n'
        f'[services.shop]\nkind = "upstream"\nurl = "{shop.url}"\nenv = {{ SHOP_URL = "" }}\n{twin}\n'
        'effects = [{ request = "POST /charges", name = "charge {body.order}" }]\n'
    )
    return file


def replayed(file: Path, **keys: Any) -> Report:
    return crash(config=file, recording="recording.jsonl", only="charges", clean_runs=1, fork=True, **keys)


@pytest.fixture
def recorded(tmp_path: Path, shop: RealShop) -> tuple[Path, RealShop]:
    """A folder with an agent and a recording of it; its model is gone by then."""
    folder = place(tmp_path / "agent", "charging.py")
    with ModelServer(replies("charge it")) as models:
        file = configured(folder, shop, models.url)
        assert run(["record", "--config", str(file), "--out", str(folder / "recording.jsonl")]) == 0
    assert shop.calls == 1
    return folder, shop


def test_a_recording_holds_what_was_answered_and_no_secret(recorded: tuple[Path, RealShop]) -> None:
    folder, _ = recorded
    kept = read_recording(folder / "recording.jsonl")
    assert [(e.service, e.method, e.path, e.status) for e in kept] == [
        ("model", "POST", "/v1/chat/completions", 200),
        ("shop", "POST", "/charges", 201),
    ]
    text = (folder / "recording.jsonl").read_text()
    assert "Bearer" not in text and "secret" not in text and (folder / "recording.jsonl").stat().st_mode & 0o077 == 0


def test_an_agent_is_crashed_on_the_recording_and_nobody_is_called(recorded: tuple[Path, RealShop]) -> None:
    folder, shop = recorded
    report = replayed(folder / "crashtest.toml")
    assert [v.duplicates for v in report.rows] == [{"charge 81": 1}]  # without a contract each arrival acts
    assert shop.calls == 1
    assert [v.extra_model_calls for v in report.rows] == [1]
    assert report.result.expected.tokens > 0


def test_a_twin_applies_the_contract_of_the_real_service(recorded: tuple[Path, RealShop]) -> None:
    folder, shop = recorded
    file = configured(folder, shop, "http://127.0.0.1:9", 'twin = "stripe.v1"')
    replayed(file).assert_unharmed()
    (row,) = replayed(file, env={"MODE": "duplicates"}).rows
    assert row.duplicates == {"charge 81": 1}  # the contract honours a key, and there is none
    assert shop.calls == 1


def test_a_recording_that_does_not_match_says_where_it_differs(recorded: tuple[Path, RealShop]) -> None:
    folder, _ = recorded
    text = (folder / "charging.py").read_text()
    (folder / "charging.py").write_text(text.replace("cents = 1999", "cents = 2500"))
    with pytest.raises(CrashtestError, match=r"POST /charges for shop with another content: .*1999.*2500.*`ignore`"):
        replayed(folder / "crashtest.toml")
    (folder / "charging.py").write_text(text.replace("/charges", "/refunds"))
    with pytest.raises(CrashtestError, match=r"holds no POST /refunds for shop; it holds POST /charges"):
        replayed(folder / "crashtest.toml")


def test_a_restart_that_asks_otherwise_is_a_row_that_proves_nothing(recorded: tuple[Path, RealShop]) -> None:
    folder, _ = recorded
    (row,) = replayed(folder / "crashtest.toml", windows=["before"], env={"MODE": "wrong_amount"}, restarts=1).rows
    assert "the recording does not match" in row.fault and "2000" in row.fault


def test_a_recording_of_other_services_or_of_nothing_is_refused(tmp_path: Path, shop: RealShop) -> None:
    folder = place(tmp_path / "agent", "charging.py")
    file = configured(folder, shop, "http://127.0.0.1:9")
    with pytest.raises(CrashtestError, match=r"cannot be read.*crashtest record"):
        replayed(file)
    (folder / "recording.jsonl").write_text("{}\n")
    with pytest.raises(CrashtestError, match="is no recording of surefoot crashtest"):
        replayed(file)
    (folder / "recording.jsonl").write_text("")
    with pytest.raises(CrashtestError, match=r"holds nothing of services\.model"):
        replayed(file)


def test_bodies_that_are_no_text_survive(tmp_path: Path) -> None:
    call = Call(method="POST", path="/x", body=b"\xff\x00")
    exchange = exchange_of("s", call, Page(status=200, body=b"\xfe", headers={"Content-Type": "image/png"}))
    assert exchange.binary and exchange.body == "/wA=" and exchange.headers == {"Content-Type": "image/png"}
