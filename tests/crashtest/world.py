"""What the tests of crashtest share: a shop, a model, and agents that are broken in known ways."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from surefoot.crashtest.api import Report, crash

AGENTS = Path(__file__).parent / "agents"
MODEL: dict[str, Any] = {
    "kind": "model",
    "env": {"OPENAI_BASE_URL": "/v1"},
    "turns": [{"text": "charge it", "tokens": 100}],
}
SHOP: dict[str, Any] = {
    "kind": "http",
    "env": {"SHOP_URL": ""},
    "routes": [
        {
            "request": "POST /charges",
            "effect": "charge {body.order}",
            "key": "Idempotency-Key",
            "reply": {"id": "ch_{n}", "paid": True},
        }
    ],
}
OPAQUE_SHOP: dict[str, Any] = {
    **SHOP,
    "routes": [{"request": "POST /charges", "effect": "charge {body.order}", "reply": {"id": "ch_{n}"}}],
}


def place(folder: Path, *names: str) -> Path:
    """A folder that holds these agents and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(AGENTS / name, folder / name)
    return folder


def charging(tmp_path: Path, mode: str, **keys: Any) -> Report:
    """Crash-test `charging.py` in this mode, forked, in one clean run unless said otherwise."""
    settings: dict[str, Any] = {
        "services": {"model": MODEL, "shop": SHOP},
        "env": {"MODE": mode, "LATE": str(tmp_path / "late")},
        "answer": "order 81 is paid",
        "fork": True,
        "preload": ["json", "urllib.request"],
        "clean_runs": 1,
        "restarts": 2,
        "pause_seconds": 0.2,
        "late_seconds": 0.2,
        "jobs": 2,
    }
    return crash([sys.executable, "charging.py"], here=place(tmp_path / "agent", "charging.py"), **{**settings, **keys})
