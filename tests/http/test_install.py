"""`install()` covers clients that nobody passed anything to, and imports nothing for it."""

import subprocess
import sys
from pathlib import Path

from surefoot.testing.models import ModelServer, replies

ROOT = Path(__file__).resolve().parents[2]


def test_default_clients_are_journaled_once_installed(tmp_path: Path) -> None:
    with ModelServer(replies("hello big world"), compress=True) as models:
        command = [sys.executable, "-m", "tests.http.installed_agent", str(tmp_path / "agents.db"), models.url]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        # the sixth asks what the first asked, again: another occurrence, paid for once
        assert int(done.stdout) == 7 == len(models.paid()) - 1


def test_importing_the_layer_imports_no_client() -> None:
    program = "import sys, surefoot.http as h; print(sorted({'httpx', 'httpx2', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
