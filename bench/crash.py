"""How long a crash test takes: the tool's own cost for each kill, and a test of usual size.

    python -m bench.crash            # both, some two minutes
    python -m bench.crash --json

100 boundaries of a Python agent that does nothing but ask, from the fork server; and ten boundaries in three windows of
an agent that takes a second. Nothing is tolerated: a row without its kill, or one that fails, ends the bench with 1.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from surefoot.crashtest.api import Report, crash

SHOP: dict[str, Any] = {
    "kind": "http",
    "env": {"SHOP_URL": ""},
    "routes": [{"request": "POST /charges", "effect": "charge {body.order}", "key": "Idempotency-Key"}],
}
AGENT = """
import http.client, json, os, sys, time
count, seconds = int(sys.argv[1]), float(sys.argv[2])
shop = http.client.HTTPConnection(os.environ["SHOP_URL"].removeprefix("http://"), timeout=30)
for number in range(count):
    time.sleep(seconds / count)
    head = {"Content-Type": "application/json", "Idempotency-Key": f"order-{number}"}
    shop.request("POST", "/charges", json.dumps({"order": number}), head)
    answer = shop.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
print("done")
"""


def measured(what: str, most_seconds: float, report: Report, seconds: float) -> dict[str, Any]:
    """One figure, beside its mark. Raises AssertionError for a row that was not killed or came out wrong."""
    report.assert_unharmed()
    report.assert_all_reached()
    return {
        "what": what,
        "rows": len(report.rows),
        "kills": report.kills,
        "seconds": round(seconds, 1),
        "mark_seconds": most_seconds,
        "jobs": report.result.jobs,
        "load": round(os.getloadavg()[0], 1),
    }


def timed(folder: Path, **keys: Any) -> tuple[Report, float]:
    """A whole crash test, its clean runs included, and how long it took."""
    started = time.monotonic()
    return crash(here=folder, services={"shop": SHOP}, answer="done", **keys), time.monotonic() - started


def main() -> None:
    """Both figures, as a table or as JSON."""
    with tempfile.TemporaryDirectory(prefix="surefoot-bench-") as name:
        folder = Path(name)
        (folder / "agent.py").write_text(AGENT)
        python = [sys.executable, "agent.py"]
        forked = timed(
            folder, command=[*python, "100", "0"], windows=["effect"], fork=True, preload=["http.client", "json"]
        )
        rows = [measured("100 boundaries of a Python agent, from the fork server", 15, *forked)]
        rows.append(
            measured("10 boundaries x 3 windows of an agent of 1 s", 60, *timed(folder, command=[*python, "10", "1"]))
        )
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['what']}: {row['seconds']} s (mark: {row['mark_seconds']} s)")
        print(f"  {row['rows']} rows, {row['kills']} kills, {row['jobs']} worlds at once; load {row['load']}")


if __name__ == "__main__":
    main()
