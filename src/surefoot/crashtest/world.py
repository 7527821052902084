"""Worlds: a fresh folder for each row, a copy of the agent's own, and the variables that lead to its services."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .config import Config, fill, placeholders
from .errors import CrashtestError

LINKED = (".venv", "venv", ".envs", "node_modules")
LEFT_OUT = ("__pycache__", "*.pyc", "*.db", "*.db-*", "*.sqlite", "*.sqlite-*", "*.sqlite3", "*.sqlite3-*")
LEFT_OUT_AT_THE_TOP = ("crashtest-results", "build", "dist", "*.egg-info")
BYTES_MAX, FILES_MAX = 50_000_000, 5_000
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
LOOPBACK = "127.0.0.1,localhost"


@dataclass(frozen=True, kw_only=True)
class World:
    """One world's places. `folder` holds everything, `here` is what the agent sees as its working directory."""

    folder: Path
    marker: str

    @property
    def here(self) -> Path:
        """The agent's working directory."""
        return self.folder / "world"

    @property
    def ledger(self) -> Path:
        """What the services did."""
        return self.folder / "ledger.jsonl"

    def output(self, life: str) -> Path:
        """What a life printed."""
        return self.folder / f"life-{life}.txt"


def listed(config: Config, *, results: Path | None = None) -> list[tuple[Path, bool]]:
    """(relative path, is a link) of all that is copied into a world. Raises CrashtestError when it is too much."""
    root = Path(config.here)
    found: list[tuple[Path, bool]] = []
    size = 0
    for folder, folders, files in os.walk(root):
        base = Path(folder)
        for name in sorted(folders):
            path = base / name
            if name in LINKED and _wanted(config, path.relative_to(root)):
                found.append((path.relative_to(root), True))
        folders[:] = sorted(n for n in folders if not _skipped(n, top=base == root) and (base / n) != results)
        for name in files:
            path = (base / name).relative_to(root)
            if _skipped(name, top=base == root) or not _wanted(config, path):
                continue
            found.append((path, False))
            size += (base / name).lstat().st_size
            if size > BYTES_MAX or len(found) > FILES_MAX:
                raise CrashtestError(
                    f"{root} holds more than {BYTES_MAX // 1_000_000} MB or {FILES_MAX} files, too much to copy "
                    "for each row; "
                    'say what the agent needs, such as files = ["agent.py", "prompts/*"], or start it in a '
                    "folder of its own"
                )
    return found


def _skipped(name: str, *, top: bool) -> bool:
    if name in LINKED or (name.startswith(".") and not name.startswith(".env")):
        return True
    patterns = (*LEFT_OUT, *LEFT_OUT_AT_THE_TOP) if top else LEFT_OUT
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _wanted(config: Config, path: Path) -> bool:
    if config.files is None:
        return True
    return any(path.match(p) or fnmatch.fnmatch(path.as_posix(), p) or _below(path, p) for p in config.files)


def _below(path: Path, pattern: str) -> bool:
    return any(fnmatch.fnmatch(parent.as_posix(), pattern.rstrip("/")) for parent in path.parents)


def make_world(folder: Path, marker: str, config: Config, files: list[tuple[Path, bool]]) -> World:
    """A fresh world in a folder that does not exist yet."""
    world = World(folder=folder, marker=marker)
    world.here.mkdir(parents=True)
    root = Path(config.here)
    for path, is_link in files:
        target = world.here / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_link:
            target.symlink_to((root / path).resolve(), target_is_directory=True)
        else:
            shutil.copy2(root / path, target)
    return world


def places_of(config: Config, world: World, urls: Mapping[str, str], life: int) -> dict[str, str]:
    """The placeholders of one life."""
    return {**placeholders(config), "dir": str(world.here), "life": str(life), **urls}


def environment(
    config: Config, world: World, urls: Mapping[str, str], life: int, proxy: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The agent's variables in one life."""
    env = dict(os.environ)
    for name in KEYS:
        env.setdefault(name, "crashtest")
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = ",".join(filter(None, [env.get(name, ""), LOOPBACK]))
    places = places_of(config, world, urls, life)
    for name, service in config.services.items():
        env.update({variable: urls[name] + ending for variable, ending in service.env.items()})
    env.update(proxy or {})
    env.update({name: fill(value, places) for name, value in config.env.items()})
    env.update({"SUREFOOT_CRASHTEST": "1", "SUREFOOT_CRASHTEST_LIFE": str(life), world.marker: "1"})
    return env
