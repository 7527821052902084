"""Agents that cannot be told where their services are, seen by an intercepting proxy. Needs mitmdump."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from surefoot.crashtest.api import crash
from surefoot.crashtest.errors import CrashtestError
from surefoot.crashtest.main import run
from surefoot.crashtest.services.recording import read_recording
from tests.crashtest.test_crashtest_agents import node
from tests.crashtest.world import place

pytestmark = pytest.mark.skipif(
    not (os.environ.get("SUREFOOT_MITMDUMP") or shutil.which("mitmdump")), reason="needs mitmdump"
)
SHOP: dict[str, Any] = {
    "kind": "http",
    "hosts": ["api.shop.example", "*.eu.shop.example"],
    "routes": [{"request": "POST /charges", "effect": "charge {body.n}", "reply": {"id": "{n}"}}],
}
CURL = "curl -sS --fail https://api.shop.example/charges -d '{\"n\": 1}' -H 'Content-Type: application/json'"
NODE = (
    "for (const host of ['api', 'west.eu']) { const r = await fetch(`https://${host}.shop.example/charges`, "
    "{ method: 'POST', body: JSON.stringify({ n: host }) }); if (!r.ok) throw new Error(await r.text()); }"
)


def proxied(tmp_path: Path, command: list[str], **keys: Any) -> Any:
    settings: dict[str, Any] = {"services": {"shop": SHOP}, "windows": ["effect"], "clean_runs": 1, "jobs": 2}
    return crash(command, here=tmp_path, proxy=True, **{**settings, **keys})


@pytest.mark.parametrize("program", ["curl", "node", "httpx", "requests"])
def test_https_is_opened_numbered_and_killed_in_every_language(tmp_path: Path, program: str) -> None:
    python = f"import {program}; {program}.post('https://api.shop.example/charges', json={{'n': 1}}).raise_for_status()"
    command = {"curl": ["sh", "-c", CURL], "node": [str(node()), "--input-type=module", "-e", NODE]}
    if program == "node" and node() is None:
        pytest.skip("needs node")
    report = proxied(tmp_path, command.get(program, [sys.executable, "-c", python]))
    assert all(v.kills == 1 and not v.fault for v in report.rows)
    assert report.rows[0].duplicates == {"charge api" if program == "node" else "charge 1": 1}


def test_a_host_that_nobody_answers_for_is_refused_and_named(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"no service answers for api\.other\.example: give one hosts"):
        proxied(tmp_path, ["sh", "-c", f"{CURL}; curl -sS https://api.other.example/x"])


def test_an_agent_that_ignores_the_proxy_is_told_how_to_be_routed(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"no requests through the proxy.*HTTPS_PROXY.*trust_env"):
        proxied(tmp_path, [sys.executable, "-c", "print('straight out')"])


class Real(ThreadingHTTPServer):
    """Somebody's real services, a model and a shop, behind TLS; each connection counts before a word is said in it."""

    daemon_threads = True

    def __init__(self, certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.connections = 0
        self.asked: list[str] = []
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def get_request(self) -> Any:
        connection, address = super().get_request()
        self.connections += 1
        return self._tls.wrap_socket(connection, server_side=True), address

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Real)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(f"{self.headers['Host'].partition(':')[0]} {self.path}")
        message = {"role": "assistant", "content": "charge it"}
        said = {"choices": [{"index": 0, "message": message}], "usage": {"total_tokens": 100}}
        body = json.dumps(said if "messages" in asked else {"id": f"real_{len(self.server.asked)}"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Real]:
    """Trusted by who records, as the real ones are; an agent trusts the proxy alone."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    certificate = tmp_path / "real.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = [*make.split(), "-keyout", str(tmp_path / "key.pem"), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    certificate.write_bytes(certificate.read_bytes() + (tmp_path / "key.pem").read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Real(certificate) as server:
        yield server
        server.shutdown()


HARD_WIRED = {"OPENAI_BASE_URL": "https://api.model.example/v1", "SHOP_URL": "https://api.shop.example"}


def recorded(tmp_path: Path, real: Real) -> Path:
    """The configuration of an agent whose addresses are fixed, and beside it a recording of the real services."""
    folder = place(tmp_path / "agent", "charging.py")
    (folder / "crashtest.toml").write_text(
        f'command = ["{sys.executable}", "charging.py"]\nanswer = "order 81 is paid"\nproxy = true\nclean_runs = 1\n'
        + "".join(f'env.{name} = "{value}"\n' for name, value in HARD_WIRED.items())
        + f'[services.model]\nkind = "upstream"\nmodel = true\nurl = "{real.url}"\nhosts = ["api.model.example"]\n'
        f'[services.shop]\nkind = "upstream"\nurl = "{real.url}"\nhosts = ["api.shop.example"]\ntwin = "stripe.v1"\n'
        'effects = [{ request = "POST /charges", name = "charge {body.order}" }]\n'
    )
    file = folder / "crashtest.toml"
    assert run(["record", "--config", str(file), "--out", str(folder / "recording.jsonl")]) == 0
    assert real.asked == ["localhost /v1/chat/completions", "localhost /charges"] and real.connections == 2
    return file


def test_what_the_proxy_recorded_once_is_crashed_on_and_the_real_services_hear_nothing(
    tmp_path: Path, real: Real
) -> None:
    file = recorded(tmp_path, real)
    kept = read_recording(file.with_name("recording.jsonl"))
    assert [(e.service, e.path, e.status) for e in kept] == [
        ("model", "/v1/chat/completions", 200),
        ("shop", "/charges", 200),
    ]
    sound = crash(config=file, recording="recording.jsonl")
    assert [v.kills for v in sound.rows] == [1] * 6
    sound.assert_unharmed()
    windows, env = ["effect"], {"MODE": "duplicates"}
    careless = crash(config=file, recording="recording.jsonl", only="charges", windows=windows, env=env)
    assert [v.duplicates for v in careless.rows] == [{"charge 81": 1}]  # the twin honours a key, and there is none
    assert real.connections == 2


def test_a_recording_by_proxy_that_does_not_match_says_where_and_calls_nobody(tmp_path: Path, real: Real) -> None:
    file = recorded(tmp_path, real)
    agent = file.with_name("charging.py")
    text = agent.read_text()
    agent.write_text(text.replace("cents = 1999", "cents = 2500"))
    with pytest.raises(CrashtestError, match=r"POST /charges for shop with another content: .*1999.*2500.*`ignore`"):
        crash(config=file, recording="recording.jsonl")
    agent.write_text(text.replace("/charges", "/refunds"))
    with pytest.raises(CrashtestError, match=r"holds no POST /refunds for shop; it holds POST /charges"):
        crash(config=file, recording="recording.jsonl")
    agent.write_text(text)
    renamed = file.read_text().replace("[services.shop]", "[services.store]")
    file.write_text(renamed)
    with pytest.raises(CrashtestError, match=r"holds nothing of services\.store, only of model, shop.*record again"):
        crash(config=file, recording="recording.jsonl")
    assert real.connections == 2


def test_a_real_service_that_cannot_be_reached_is_not_recorded_as_an_answer(
    tmp_path: Path, real: Real, capsys: pytest.CaptureFixture[str]
) -> None:
    file = recorded(tmp_path, real)
    before = file.with_name("recording.jsonl").read_bytes()
    file.write_text(file.read_text().replace(real.url, "https://localhost:9"))
    arguments = ["record", "--config", str(file), "--out", str(file.with_name("recording.jsonl"))]
    assert run(arguments) == 2
    assert "could not reach https://localhost:9" in capsys.readouterr().err
    easy = "curl -sS https://api.shop.example/charges -d '{}'; echo order 81 is paid"  # it takes any answer
    assert run([*arguments, "--", "sh", "-c", easy]) == 2
    assert "could not reach https://localhost:9" in capsys.readouterr().err
    assert file.with_name("recording.jsonl").read_bytes() == before
