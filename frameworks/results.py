"""What was measured, kept in frameworks/results/NAME.json and committed."""

from __future__ import annotations

from typing import Any

import msgspec

from .layout import HERE, Framework


class Measured(msgspec.Struct, kw_only=True):
    """One row. `ends`: the exit statuses of its lives; `said`: the last output, if it did not end well."""

    version: str
    arm: str
    surefoot: bool
    row: str
    effects: dict[str, int]
    model_calls: int
    kills: int
    ends: list[int]
    right: bool
    refused: int = 0
    feature: str = ""
    said: str = ""
    seconds: float = 0.0  # that it took


class Result(msgspec.Struct, kw_only=True):
    """One framework. `tests` counts those of its folder by feature: [passed, failed]."""

    framework: str
    date: str
    command: str
    python: str
    versions: dict[str, dict[str, str]]
    megabytes: int
    rows: list[Measured]
    tests: dict[str, dict[str, list[int]]]


def save(framework: Framework, result: Result) -> None:
    """Write it; rows of environments that were not measured now are kept."""
    old = load(framework)
    if old is not None:
        new = {(row.version, row.arm, row.row) for row in result.rows}
        declared = {(v, arm.name, row) for arm in framework.arm for v in arm.versions for row in arm.rows}
        kept = [r for r in old.rows if (r.version, r.arm, r.row) in declared - new]
        result.rows = [*result.rows, *kept]
        result.versions = {**old.versions, **result.versions}
        result.tests = {**old.tests, **result.tests}
    order = {(v, a.name, r): n for n, (v, a, r) in enumerate(_declared(framework))}
    result.rows.sort(key=lambda row: order.get((row.version, row.arm, row.row), 0))
    framework.result.parent.mkdir(exist_ok=True)
    framework.result.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def _declared(framework: Framework) -> list[Any]:
    return [(v, arm, row) for v in framework.versions for arm in framework.arm for row in arm.rows]


def load(framework: Framework) -> Result | None:
    """What was measured, if anything was."""
    if not framework.result.exists():
        return None
    return msgspec.json.decode(framework.result.read_bytes(), type=Result)


def load_all() -> dict[str, Result]:
    """Every committed result."""
    files = sorted((HERE / "results").glob("*.json"))
    return {file.stem: msgspec.json.decode(file.read_bytes(), type=Result) for file in files}
