"""An agent that ends with its last reply is killed after that reply all the same, or it is said that it was not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from surefoot.crashtest.api import crash
from surefoot.crashtest.main import run
from surefoot.crashtest.process import state_of
from surefoot.crashtest.tracing import Tracer
from tests.crashtest.world import SHOP

HURRIED = r"""
import os, socket
host, _, port = os.environ["SHOP_URL"].removeprefix("http://").partition(":")
shop = socket.create_connection((host, int(port)))
head = b"POST /charges HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n"
shop.sendall(head + b'{"order": "1"}')
shop.recv(65536)
os._exit(0)
"""
THREADED = """
import os, threading, urllib.request as u
def charge():
    u.urlopen(u.Request(os.environ["SHOP_URL"] + "/charges", b'{"order": "1"}')).read()
    os._exit(0)
thread = threading.Thread(target=charge)
thread.start()
thread.join()
"""
CURL = 'curl -sS --fail -d \'{"order": "1"}\' -H \'Content-Type: application/json\' "$SHOP_URL/charges"'
AGENTS = {
    "python": [sys.executable, "-c", HURRIED],
    "thread": [sys.executable, "-c", THREADED],
    "curl": ["sh", "-c", f"exec {CURL}"],
    "below a shell": ["sh", "-c", f"{CURL}; true"],
}
needs_ptrace = pytest.mark.skipif(sys.platform != "linux", reason="the kernel holds nobody here")


@needs_ptrace
@pytest.mark.parametrize("agent", list(AGENTS))
def test_an_agent_that_ends_with_its_last_reply_is_killed_after_it(tmp_path: Path, agent: str) -> None:
    if "curl" in " ".join(AGENTS[agent]) and shutil.which("curl") is None:
        pytest.skip("needs curl")
    windows = ["read", "recorded"]
    report = crash(AGENTS[agent], here=tmp_path, services={"shop": SHOP}, windows=windows, clean_runs=1, jobs=2)
    assert [(v.row.window, v.kills, v.exit_codes[0], v.fault) for v in report.rows] == [
        ("read", 1, -9, ""),
        ("recorded", 1, -9, ""),
    ]
    assert all(v.duplicates == {"charge 1": 1} for v in report.rows)


@needs_ptrace
def test_read_is_before_and_recorded_after_what_is_done_with_the_reply(tmp_path: Path) -> None:
    note = HURRIED.replace("os._exit(0)", "open('done', 'w').close(); os._exit(0)")
    text = (
        f"import os\nprint('something' if os.path.exists('done') else 'nothing', 'was done', flush=True)\n"
        f"if os.environ['SUREFOOT_CRASHTEST_LIFE'] == '1':\n    exec({note!r})\n"
    )
    report = crash(
        [sys.executable, "-c", text],
        here=tmp_path,
        services={"shop": SHOP},
        windows=["read", "recorded"],
        answer="nothing was done",
        clean_runs=1,
    )
    read, recorded = report.rows
    assert read.kills == recorded.kills == 1
    assert (read.wrong_answer, recorded.wrong_answer) == ("", "something was done")


class Slow(ThreadingHTTPServer):
    """Answers only when who asked is gone, so that no kill can ever come in time."""

    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pid, give_up = int(self.headers["X-Pid"]), time.monotonic() + 60
        Path(self.headers["X-Came"]).touch()
        while state_of(pid) not in ("", "Z", "X") and time.monotonic() < give_up:
            time.sleep(0.002)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


FORGETFUL = r"""
import os, socket, time, urllib.request as u
u.urlopen(u.Request(os.environ["SHOP_URL"] + "/first", headers={"X-Pid": "0", "X-Came": os.devnull})).read()
came = os.path.abspath("came").encode()
host, _, port = os.environ["SHOP_URL"].removeprefix("http://").partition(":")
shop = socket.create_connection((host, int(port)))
shop.sendall(b"GET /ping HTTP/1.1\r\nX-Pid: %d\r\nX-Came: %s\r\n\r\n" % (os.getpid(), came))
while not os.path.exists(came):
    time.sleep(0.002)
os._exit(0)
"""


@pytest.fixture
def forgetful() -> Iterator[dict[str, Any]]:
    with Slow(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield {
            "command": [sys.executable, "-c", FORGETFUL],
            "services": {"shop": {"kind": "upstream", "url": url, "env": {"SHOP_URL": ""}}},
            "windows": ["recorded"],
            "clean_runs": 1,
        }
        server.shutdown()


def test_an_agent_that_had_ended_before_its_kill_is_told_and_counts_neither_way(
    tmp_path: Path, forgetful: dict[str, Any]
) -> None:
    report = crash(here=tmp_path, **forgetful)
    first, recorded = report.rows
    assert first.kills == 1 and first.unreached == ""
    assert (recorded.kills, recorded.fault, recorded.fails) == (0, "", False)
    assert "it had ended by itself before the kill came, in 6 of 6 tries" in recorded.unreached
    assert report.headline.startswith("In 1 of 2 rows") and "1 tested nothing" in report.headline
    with pytest.warns(UserWarning, match="nothing was tested"):
        report.assert_no_duplicates()
    with pytest.raises(AssertionError, match="unreached"):
        report.assert_all_reached()


def test_a_row_that_was_not_reached_is_printed_so_and_fails_where_that_is_asked_for(
    tmp_path: Path, forgetful: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = forgetful["services"]["shop"]["url"]
    Path("agent.py").write_text(FORGETFUL)
    Path("crashtest.toml").write_text(
        f'command = ["{sys.executable}", "agent.py"]\nwindows = ["recorded"]\nclean_runs = 1\n'
        f'[services.shop]\nkind = "upstream"\nurl = "{url}"\nenv = {{ SHOP_URL = "" }}\n'
    )
    assert run([]) == 0
    assert "not reached" in capsys.readouterr().out
    suite = ElementTree.parse(Path("crashtest-results", "junit.xml")).getroot()[0]
    assert suite.get("skipped") == "1" and suite.find(".//skipped") is not None
    found = json.loads(Path("crashtest-results", "result.json").read_text())
    assert found["counts"]["unreached"] == 1 and found["kills"] == 1
    assert "nothing was tested" in Path("crashtest-results", "report.html").read_text()
    assert run(["--allow", "unreached=0", "--out", ""]) == 1
    assert run(["--only", "/ping", "--out", ""]) == 2
    assert "Nothing was tested" in capsys.readouterr().out


@needs_ptrace
def test_a_thread_that_somebody_else_traces_is_not_said_to_be_held() -> None:
    program = "import ctypes, sys; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0), flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    assert child.stdout.readline() == b"0\n"  # this process traces it already
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(Tracer([child.pid]).is_exact))
    thread.start()
    thread.join()
    child.stdin.close()
    child.kill()
    child.wait()
    assert found == [False]
