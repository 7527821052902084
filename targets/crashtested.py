"""Rows that `surefoot crashtest` measured: one run of the tool for each arm, one row for each kind of fault."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from targets.bench import Bench
from targets.results import Row, Verdict

Json = dict[str, Any]
COMMAND = (sys.executable, "-c", "import sys; from surefoot.cli import main; sys.exit(main())", "crashtest")
KINDS = {
    "twice": "killed again while it recovers",
    "lose_reply": "answer lost, nobody is killed",
    "500_after": "500 after acting",
    "late": "connection cut, acts afterwards",
    "pause before": "stopped past its lease as its request arrived; the shop acts when the other copy has ended",
    "pause effect": "stopped past its lease after its request was acted on; another copy runs, it wakes",
    "replicas": "two copies at once",
}


def rows(bench: Bench, arm: str, *, variant: str, ours: bool, options: Sequence[str] = ()) -> Iterator[Row]:
    """The rows of one variant of the target's crashtest.toml; RuntimeError if the tool could not do its work."""
    config = ["--config", bench.file("crashtest.toml"), "--variant", variant, "--json", "--out", ""]
    done = subprocess.run([*COMMAND, *config, *options], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        said = _faults(done.stdout) if done.returncode == 7 else (done.stdout + done.stderr)[-2000:]
        raise RuntimeError(f"surefoot crashtest exited with {done.returncode}: {said}")
    yield from converted(json.loads(done.stdout), arm, ours=ours)


def _faults(document: str) -> str:
    """What went wrong with which row."""
    found = [row for row in json.loads(document)["rows"] if row["fault"]]
    return "; ".join(f"{row['id']}: {row['fault']} {row['exit_codes']} {row['note']}" for row in found)


def converted(document: Json, arm: str, *, ours: bool) -> Iterator[Row]:
    """Its document as rows: those of one kind, and for kills of one window, are the tries of one row."""
    grouped: dict[str, list[Json]] = defaultdict(list)
    for row in document["rows"]:
        grouped[_name(row)].append(row)
    for name, tries in grouped.items():
        yield _row(name, tries, arm, ours=ours)


def _name(row: Json) -> str:
    if row["kind"] == "kill":
        return f"killed, window {row['window']}"
    kind = f"pause {row['window']}" if row["kind"] == "pause" else row["kind"]
    return KINDS.get(kind, kind)


def _row(name: str, tries: list[Json], arm: str, *, ours: bool) -> Row:
    kills = sum(row["kills"] for row in tries)
    killed = tries[0]["kind"] in ("kill", "twice")
    asked = sum({"kill": 1, "twice": 2}.get(row["kind"], 1) for row in tries)
    ends: dict[str, int] = {}
    for row in tries:
        for code in row["exit_codes"]:
            ends[str(code)] = ends.get(str(code), 0) + 1
    verdict = max((_verdict(row) for row in tries), key=ORDER.index)
    bad = [row for row in tries if row["fails"]]
    calls = max(row["extra_model_calls"] for row in tries)
    duplicates, lost = (sum(bool(row[word]) for row in tries) for word in ("duplicates", "lost"))
    return Row(
        row=name,
        arm=arm,
        ours=ours,
        seen=f"{duplicates} / {lost} / +{calls}",
        verdict=verdict,
        tries=len(tries),
        good=len(tries) - len(bad),
        fault="kill" if killed else tries[0]["kind"],
        asked=asked,
        done=kills if killed else sum(not row["fault"] for row in tries),
        ends=ends,
        counts={"duplicates": duplicates, "lost": lost, "extra_model_calls": calls},
        why=bad[0]["sentence"] if bad and ours else "",
    )


ORDER: tuple[Verdict, ...] = ("once", "told", "stuck", "lost", "wrong", "twice")


def _verdict(row: Json) -> Verdict:
    if row["duplicates"]:
        return "twice"
    if row["wrong"] or row["wrong_answer"]:
        return "wrong"
    if row["lost"]:
        return "lost"
    if row["stranded"] or row["gave_up"]:
        return "stuck"
    return "told" if row["asks"] else "once"
