"""Where targets are, and what a whole one consists of.

A target is a folder: `target.toml` (what it is), `requirements.txt` (third-party packages by version; empty if it
needs none), `agent_published.py`, `agent_surefoot.py`, `run.py` (`measure(bench)` yields rows),
and `results.json`, committed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENVS = HERE / ".envs"
PARTS = ("target.toml", "requirements.txt", "agent_published.py", "agent_surefoot.py", "run.py")


@dataclass(frozen=True, kw_only=True)
class Target:
    """One folder, read.

    `envs` maps an environment's name to its requirements file; `engines` are environments of `engines/` that it uses as
    well. `by` is the make target that runs it: `targets` for all that need nothing but PyPI. `not_run` says why there
    is no result, where there is none.
    """

    name: str
    folder: Path
    title: str
    what: str
    published: str = ""
    licence: str = ""
    order: int = 100
    by: str = "targets"
    not_run: str = ""
    extras: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    parts: tuple[str, ...] = PARTS
    notes: tuple[str, ...] = ()
    envs: dict[str, str] = field(default_factory=dict[str, str])
    engines: tuple[str, ...] = ()
    minutes: float = 1.0

    @property
    def results(self) -> Path:
        return self.folder / "results.json"

    def missing(self) -> list[str]:
        """The files that a whole target has and this one has not."""
        wanted = [*self.parts, *self.envs.values(), *([] if self.not_run else ["results.json"])]
        return [name for name in wanted if not (self.folder / name).exists()]


def load(folder: Path) -> Target:
    """One target; an unknown word in its `[target]` table is an error that names it."""
    table: dict[str, Any] = tomllib.loads((folder / "target.toml").read_text("utf-8"))["target"]
    known = set(Target.__dataclass_fields__) - {"name", "folder"}
    if strange := sorted(set(table) - known):
        raise ValueError(
            f"{folder.name}/target.toml: unknown {', '.join(strange)}; known are {', '.join(sorted(known))}"
        )
    lists = {name: tuple(table[name]) for name in ("extras", "packages", "parts", "notes", "engines") if name in table}
    read = {**table, **lists}
    if (
        "envs" not in read
        and (folder / "requirements.txt").exists()
        and (folder / "requirements.txt").read_text().strip()
    ):
        read["envs"] = {folder.name: "requirements.txt"}
    return Target(name=folder.name, folder=folder, **read)


def every() -> Iterator[Target]:
    """All targets, in the order of the table."""
    found = [load(path.parent) for path in HERE.glob("*/target.toml")]
    yield from sorted(found, key=lambda target: (target.order, target.name))
