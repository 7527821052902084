"""Reads named queries from a `.sql` file: `-- name: x`, a sentence, one statement."""

from __future__ import annotations

import os


def _read(*parts: str) -> str:
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def load_queries(module_file: str, name: str = "queries.sql") -> dict[str, str]:
    """Every statement by its name, of the file that lies beside the module `module_file`."""
    queries: dict[str, str] = {}
    for part in _read(os.path.dirname(module_file), name).split("-- name: ")[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        queries[title.strip()] = "\n".join(lines).strip().rstrip(";")
    return queries


def load_migrations(module_file: str) -> list[tuple[int, str]]:
    """Numbered migrations in order, of the folder that lies beside the module: (number, script)."""
    folder = os.path.join(os.path.dirname(module_file), "migrations")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    return [(int(name[:4]), _read(folder, name)) for name in names]
