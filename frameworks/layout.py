"""What a framework's folder declares: `frameworks/NAME/framework.toml`, beside agent.py and the requirements."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIX_ROWS = ("control", "before", "gap", "tool end", "returned", "next reply lost")


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to write the same agent.

    `surefoot`: then each effect once, and at most the call in flight again, is asserted in every row; otherwise the
    rows are only recorded. `feature` is the column of the table that these rows prove; `options` reach `agent.run` as
    `job.options`. `versions`: "newest", "oldest" or both. `proxy`: its model calls go through `surefoot proxy`, in the
    place of this provider, such as "anthropic".
    """

    name: str
    surefoot: bool = False
    rows: tuple[str, ...] = SIX_ROWS
    options: dict[str, Any] = {}
    feature: str = ""
    versions: tuple[str, ...] = ("newest",)
    planner: str = "checkout"
    spare_calls: int = 1
    missing: tuple[str, ...] = ()
    proxy: str = ""


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The program of a page, killed in the gap: the model calls that its two lives pay, and a program that it needs."""

    calls: int = 2
    needs: str = ""


class Framework(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One framework. `by`: how Surefoot comes in: "adapter", "recipe" or "by hand"; `light`: CI runs it."""

    title: str
    licence: str
    packages: tuple[str, ...]
    by: str
    page: str = ""
    light: bool = False
    fork: bool = True
    jobs: int = 2
    seconds: float = 90.0
    environment: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    not_run: str = ""
    program: Program = Program()
    arm: tuple[Arm, ...] = ()
    name: str = ""

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def result(self) -> Path:
        return HERE / "results" / f"{self.name}.json"

    def requirements(self, version: str) -> Path:
        """The packages of one environment; without a file for the oldest there is only the newest."""
        return self.folder / ("requirements.txt" if version == "newest" else f"requirements-{version}.txt")

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(v for v in ("newest", "oldest") if self.requirements(v).exists())


def framework(name: str) -> Framework:
    """The framework of that folder."""
    file = HERE / name / "framework.toml"
    if not file.exists():
        raise SystemExit(f"no frameworks/{name}/framework.toml; there are: {', '.join(names())}")
    told = {**tomllib.loads(file.read_text("utf-8")), "name": name}
    try:
        return msgspec.convert(told, Framework)
    except msgspec.ValidationError as error:
        raise SystemExit(f"{file.relative_to(ROOT)}: {error}") from None


def names() -> list[str]:
    """Every framework that has a folder."""
    return sorted(file.parent.name for file in HERE.glob("*/framework.toml"))
