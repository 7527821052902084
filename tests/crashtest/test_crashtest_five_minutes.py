"""The page "Crash-test your agent in five minutes" works as pasted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crashtest.test_crashtest_agents import node

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "crashtest-in-five-minutes.md").read_text("utf-8")
LANGGRAPH = ROOT / "frameworks" / ".envs" / "langgraph" / "bin"
GRID = re.compile(r"^ (\S.*#\d) +(\S+) +(\S+) +(\S+) +[\d.]+ s *$", re.MULTILINE)


def block(language: str, number: int = 0) -> str:
    """The nth block of this language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", PAGE)[number]


def told(text: str) -> str:
    """The sentences after the table, as one line."""
    return " ".join(text.partition("at once\n")[2].split())


def crashtest(folder: Path, path: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).parent / "surefoot")
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    return subprocess.run(
        [program, "crashtest", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.mark.skipif(node() is None, reason="needs node")
def test_the_node_script_fails_in_the_five_rows_that_are_shown(tmp_path: Path) -> None:
    (tmp_path / "crashtest.toml").write_text(block("toml"))
    (tmp_path / "agent.mjs").write_text(block("js"))
    done = crashtest(tmp_path, str(Path(str(node())).parent), "--", "node", "agent.mjs")
    assert done.returncode == 1, done.stderr
    shown = block("console", 1)
    assert GRID.findall(done.stdout) == GRID.findall(shown) != []
    assert told(shown) == told(done.stdout)


@pytest.mark.timeout(1_200)
@pytest.mark.skipif("SUREFOOT_FIVE_MINUTES" not in os.environ, reason="takes minutes, and the environment of LangGraph")
def test_the_langgraph_agent_fails_as_shown_and_is_repaired_as_shown(tmp_path: Path) -> None:
    (tmp_path / "crashtest.toml").write_text(block("toml"))
    (tmp_path / "agent.py").write_text(block("python"))
    done = crashtest(tmp_path, str(LANGGRAPH))
    shown = block("console", 1)
    assert GRID.findall(done.stdout) == GRID.findall(shown) != [], done.stdout + done.stderr
    assert told(shown) == told(done.stdout)
    repair = "".join(f"    {line}\n" for line in block("python", 1).splitlines())
    text, count = re.subn(r"(?m)^    answer = .*\n", repair, block("python"))
    assert count == 1
    (tmp_path / "agent.py").write_text(text)
    done = crashtest(tmp_path, str(LANGGRAPH))
    assert done.returncode == 0 and " ".join(block("text").split()) in told(done.stdout), done.stdout
