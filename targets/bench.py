"""What a target's `measure` is given."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from targets.envs import python_of
from targets.layout import Target


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A target under way: its interpreters, its files, and folders of its own to keep worlds in."""

    target: Target
    scratch: Path
    only: str = ""

    def wants(self, arm: str) -> bool:
        """False for an arm that this run leaves out (`--only`)."""
        return re.search(self.only, arm) is not None

    def python(self, env: str | None = None) -> str:
        """The interpreter of an environment (default: the target's only one; ours, if it has none)."""
        if not self.target.envs:
            return sys.executable
        return str(python_of(env if env is not None else next(iter(self.target.envs))))

    def file(self, name: str) -> str:
        """A file of the target's folder."""
        return str(self.target.folder / name)

    def world(self, name: str) -> Path:
        """A fresh folder for one world."""
        folder = self.scratch / "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        folder.mkdir(parents=True)
        return folder
