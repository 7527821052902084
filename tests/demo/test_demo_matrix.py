"""The main job, as a person runs it: the whole matrix, every kill real, every figure counted."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot.demo.scenario import POLICIES

CPU_SECONDS_MAX = 110.0
"""A minute on two cores is 120 seconds of CPU; counted so, because the machine may be busy with other tests."""

TABLE = {
    # policy: kills with a duplicate, worst, mean extra tokens, worst extra tokens
    "none": (20, 3, 17_967, 37_000),
    "turn": (6, 1, 6_167, 10_400),
    "journal": (3, 1, 1_233, 10_400),
    "keys": (0, 0, 1_233, 10_400),
    "surefoot-keyed": (0, 0, 1_233, 10_400),
    "surefoot-lookup": (0, 0, 1_233, 10_400),
    "surefoot-opaque": (0, 0, 1_233, 10_400),
}


def cpu_seconds() -> float:
    """What the finished children of this process, and theirs, have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def demo(*options: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "surefoot.demo", "--json", "-", "--out", str(directory / "page.html"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.timeout(300)
def test_the_whole_matrix_lands_on_its_table_within_a_minute_of_two_cores(tmp_path: Path) -> None:
    used = cpu_seconds()
    finished = demo(directory=tmp_path)
    assert finished.returncode == 0, finished.stderr[-4000:]
    assert cpu_seconds() - used < CPU_SECONDS_MAX
    matrix = json.loads(finished.stdout)
    assert matrix["complaints"] == []
    assert {policy["name"]: figures(policy) for policy in matrix["policies"]} == TABLE
    for policy in matrix["policies"]:
        check_kills(policy)
        check_writes(policy)
    check_page((tmp_path / "page.html").read_text())


def figures(policy: dict[str, Any]) -> tuple[int, int, int, int]:
    """The four published figures, as counted."""
    names = ("duplicate_kills", "worst_duplicates", "mean_extra_tokens", "worst_extra_tokens")
    return tuple(policy[name] for name in names)


def check_kills(policy: dict[str, Any]) -> None:
    """Every kill was a kill, and nobody was killed in the control."""
    control, *rows = policy["rows"]
    assert (control["exit_codes"], control["tokens"], control["duplicates"]) == ([0], 37_000, 0)
    assert len({(row["kill"]["step"], row["kill"]["window"]) for row in rows}) == len(rows) == 30
    assert {row["exit_codes"][0] for row in rows} == {-9}
    assert {row["exit_codes"][-1] for row in rows} == {0}


def check_writes(policy: dict[str, Any]) -> None:
    """No write is lost, and only an opaque receiver needs a person, at most once per kill in a send window."""
    assert {count for row in policy["rows"] for count in row["performed"].values()} <= {1, 2}
    assert policy["lost"] == 0
    assert policy["parked"] == 0 or (policy["name"] == "surefoot-opaque" and policy["parked"] <= 6)


def check_page(page: str) -> None:
    """The page shows every policy and asks the network for nothing."""
    for policy in POLICIES:
        assert policy.title in page
    assert "17,967" in page
    assert "is not a measurement" not in page
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in page


def test_a_matrix_with_one_kill_left_out_fails_and_says_which(tmp_path: Path) -> None:
    finished = demo("--policies", "keys", "--disarm", "4:effect", directory=tmp_path)
    assert finished.returncode == 1
    assert "keys 4:effect: the first life was to die by SIGKILL" in " ".join(finished.stderr.split())
    assert "is not a measurement" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("options", [("--policies", "nonesuch"), ("--policies", ""), ("--disarm", "4:after")])
def test_options_that_make_no_sense_are_refused(options: tuple[str, ...], tmp_path: Path) -> None:
    assert demo(*options, directory=tmp_path).returncode == 2
