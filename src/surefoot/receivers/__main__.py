"""`python -m surefoot.receivers [FILE]`: writes the catalog as a document, to stdout without a file."""

from __future__ import annotations

import sys

from .document import document


def main(arguments: list[str]) -> int:
    """Write the document; returns the exit code."""
    if len(arguments) > 1 or arguments[:1] == ["--help"]:
        sys.stderr.write("usage: python -m surefoot.receivers [FILE]\n")
        return 2
    if arguments:
        with open(arguments[0], "w", encoding="utf-8") as file:
            file.write(document())
    else:
        sys.stdout.write(document())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
