"""`surefoot proxy` beside a world: it stands before the model, and outlives the agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

PROGRAM = "import sys; from surefoot.cli import main; sys.exit(main())"
SECONDS_MAX = 30


class Proxied:
    """One proxy with a store of its own; a context manager."""

    def __init__(self, folder: Path, service: str, models: str) -> None:
        """`service` is the provider whose place `models` takes, such as "anthropic". Serving when this returns."""
        self._service = service
        where = ["--port", "0", "--db", str(folder / "proxy.db"), "--upstream", f"{service}={models}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "proxy", *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._url = self._process.stdout.readline().rpartition(" ")[2].strip()
        if not self._url.startswith("http://"):
            raise RuntimeError(f"surefoot proxy did not start: {self._process.communicate()[1][-2000:]}")

    def address(self, run: str, life: int) -> str:
        """Where this life of the agent finds its model."""
        return f"{self._url}/run/{run}/attempt/{life}/{self._service}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
