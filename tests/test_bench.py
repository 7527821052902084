"""The benchmark, run for facts with tiny counts: workers answer completely, marks are judged rightly. Never speed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import fleet, rows
from bench.launch import DEF, GROUP, Bench, bare, bytes_in_use, command, environment, ours, run_worker
from bench.table import Line, Mark, render, tally
from surefoot.testing.postgres import PrivatePostgres

WORKS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "sequence": (("--n", "12"), {"bodies", "p50_us", "p99_us", "cpu_us", "raw_us", "ratio"}),
    "at_once": (("--runs", "3"), {"steps", "bodies", "steps_s", "cpu_us", "written_bytes", "peak_rss_mb"}),
    "empty": (("--n", "5"), {"runs", "alone_s", "together_s"}),
    "growth": (("--n", "40"), {"step_10_us", "step_n_us", "over_step_10", "over_fresh_step_10"}),
    "memory": (("--n", "100"), {"first_mb", "middle_mb", "last_mb", "bytes_per_step", "seconds"}),
    "rest": (("--n", "10"), {"bodies"}),
}
OURS_ONLY = {"effects": (("--n", "12"), {"bodies", "p50_us", "ratio"})}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(home=tmp_path, rounds=1, long=False)


def complete(answer: dict[str, Any], wanted: set[str]) -> None:
    assert "error" not in answer, answer
    assert wanted <= answer.keys()
    assert all(answer[key] is not None for key in wanted - {"written_bytes"})


@pytest.mark.parametrize("work", WORKS)
def test_the_limit_answers_every_work_completely(bench: Bench, work: str) -> None:
    options, wanted = WORKS[work]
    complete(bench.ask(bare("group"), work, *options, limit=30), wanted)


@pytest.mark.parametrize("kind", ["def", "async"])
@pytest.mark.parametrize("work", [*WORKS, *OURS_ONLY])
def test_surefoot_answers_every_work_completely(bench: Bench, work: str, kind: str) -> None:
    options, wanted = {**WORKS, **OURS_ONLY}[work]
    answer = bench.ask(ours(kind), work, *options, limit=30)
    complete(answer, wanted)
    if "steps" in wanted and work == "at_once":
        assert answer["bodies"] == answer["steps"] == 60


@pytest.mark.parametrize("kind", ["def", "async"])
def test_no_acknowledged_step_runs_again_after_a_kill(bench: Bench, kind: str) -> None:
    answer = rows.kill_and_resume(bench, ours(kind), 15)
    complete(answer, {"resume_ms", "import_ms"})
    assert answer["bodies_before"] == 0
    assert bench.answers[0]["exit"] == -9


def test_the_profile_names_functions(bench: Bench) -> None:
    folder = bench.folder()
    answer = run_worker(command(ours("def"), "sequence", folder, "--n", "20", "--profile"), 30)
    complete(answer, {"functions", "steps"})
    assert len(answer["functions"]) > 5


def test_bytes_in_use_leaves_out_free_pages(bench: Bench) -> None:
    folder = bench.folder()
    bench.ask(bare("inline"), "rest", "--n", "10", folder=folder)
    on_disk = sum(path.stat().st_size for path in Path(folder).rglob("*.db"))
    assert 0 < bytes_in_use(folder) < on_disk / 10  # the file was made long once, and emptied


def test_a_broken_worker_is_a_line_and_not_a_failure(bench: Bench) -> None:
    answer = run_worker([sys.executable, "-c", "raise SystemExit('no engine')"], 10)
    assert answer == {"error": "no engine", "exit": 1}
    assert "error" in run_worker([sys.executable, "-c", "import time; time.sleep(30)"], 0.2)


def test_a_mark_is_judged_by_the_median() -> None:
    line = Line(row="r", who=DEF, what="w", values=(0.9, 1.0, 5.0), mark=Mark(at_most=1.0))
    assert line.verdict == "reached"
    missed = Line(row="r", who=GROUP, what="w", values=(0.4,), mark=Mark(at_least=0.5))
    silent = Line(row="r", who="x", what="w", mark=Mark(at_least=0.5), why="no engine")
    assert [missed.verdict, silent.verdict] == ["MISSED", "not measured"]
    assert tally([line, missed, silent]) == "1 reached, 1 MISSED, 1 not measured"
    assert "no engine" in render([line, missed, silent])


POSTGRES = ("P1", "P2", "P3", "P4", "P6", "P7")
"""P5 waits for a lease of 15 s; a takeover is tested where workers are."""


@pytest.mark.parametrize("row", POSTGRES)
def test_a_row_on_postgresql_is_measured_completely(bench: Bench, postgres: PrivatePostgres, row: str) -> None:
    bench.server, bench.small, bench.only = postgres, True, ("surefoot",)
    lines = fleet.ROWS[row](bench)
    assert lines and all(line.row.startswith(f"{row}.") for line in lines)
    silent = [line for line in lines if not line.values and line.who != "0 waiting" and "over" not in line.what]
    assert not silent, [(line.who, line.what, line.why) for line in silent]
    again = [value for line in lines if "again" in line.what for value in line.values]
    assert not any(again), "a step that was acknowledged ran again"


def test_a_worker_that_fails_ends_its_fleet_with_its_words(bench: Bench, postgres: PrivatePostgres) -> None:
    bench.server = postgres
    broken = replace(ours("async", postgres=True), worker="nothing.py")
    answer = fleet.one_round(bench, broken, "share", fleet.share(bench, 2, 2, 2))
    assert "nothing.py" in answer["error"]


def test_the_benchmark_ends_well_and_writes_json(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    asked = [sys.executable, "-m", "bench", "--rounds", "1", "--rows", "8", "--only", "nobody"]
    done = subprocess.run(
        [*asked, "--dir", str(tmp_path), "--out", str(out)],
        env=environment(), cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"machine", "lines", "answers"} <= json.loads(out.read_text()).keys()
