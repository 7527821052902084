"""Reads named queries from a `.sql` file: `-- name: x`, a sentence, one statement."""

from __future__ import annotations

from importlib.resources import files


def load_queries(package: str, name: str = "queries.sql") -> dict[str, str]:
    """Every statement of the file by its name."""
    queries: dict[str, str] = {}
    for part in files(package).joinpath(name).read_text().split("-- name: ")[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if not line.startswith("--")]
        queries[title.strip()] = "\n".join(lines).strip().rstrip(";")
    return queries


def load_migrations(package: str) -> list[tuple[int, str]]:
    """Numbered migrations in order: (number, script)."""
    found = [item for item in files(package).joinpath("migrations").iterdir() if item.name.endswith(".sql")]
    return sorted((int(item.name[:4]), item.read_text()) for item in found)
