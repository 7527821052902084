"""Agents that cannot be told where their services are, seen by an intercepting proxy. Needs mitmdump."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot.crashtest.api import crash
from surefoot.crashtest.errors import CrashtestError
from tests.crashtest.test_crashtest_agents import node

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
