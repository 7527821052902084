"""Output for people: lines that hold at 80 columns and in a pipe.

Everything printed passes `safe` here, so nothing that was stored can steer the terminal, and nothing is read as rich
markup. Prose is wrapped at blanks; ids and commands are never broken or cut.
"""

from __future__ import annotations

import textwrap

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from .text import safe

Part = str | tuple[str, str]
STYLES = {
    "succeeded": "green",
    "confirmed": "green",
    "running": "cyan",
    "attempted": "cyan",
    "intended": "cyan",
    "pending": "yellow",
    "waiting": "yellow",
    "parked": "bold yellow",
    "in_doubt": "yellow",
    "failed": "red",
    "refused": "red",
    "diverged": "bold red",
    "damaged": "bold red",
    "takeover": "bold red",
    "failure": "red",
    "decision": "bold",
}


class Page:
    """Prints to stdout; colours only on a terminal."""

    def __init__(self) -> None:
        """Made for one command."""
        self._console = Console(markup=False, emoji=False, highlight=False)
        self._width = max(self._console.width, 40)

    def line(self, *parts: Part, indent: int = 0) -> None:
        """One line, never broken; a part may carry a style."""
        text = Text(" " * indent)
        for part in parts:
            word, style = part if isinstance(part, tuple) else (part, "")
            text.append(safe(word), style=style or None)
        text.rstrip()
        self._console.print(text, soft_wrap=True)

    def status(self, word: str, width: int = 0) -> Part:
        """A status or kind, padded, in its colour."""
        return word.ljust(width), STYLES.get(word, "")

    def cell(self, word: str, width: int) -> str:
        """A word padded to a width on the screen."""
        return safe(word) + " " * max(width - cell_len(safe(word)), 0)

    def prose(self, text: str, *, indent: int = 0, label: str = "") -> None:
        """Text of any length, each of its lines wrapped at blanks behind `label`."""
        first, rest = " " * indent + label, " " * (indent + len(label))
        for line in text.rstrip("\n").split("\n"):
            margin = rest + " " * min(len(line) - len(line.lstrip(" ")), 8)
            lead = first + margin[len(rest) :]
            wrapped = textwrap.wrap(
                safe(line.strip(" ")),
                width=self._width,
                initial_indent=lead,
                subsequent_indent=margin,
                break_long_words=False,
                break_on_hyphens=False,
            )
            for piece in wrapped or [lead.rstrip()]:
                self._console.print(Text(piece), soft_wrap=True)
            first = rest

    def gap(self) -> None:
        """An empty line."""
        self._console.print()
