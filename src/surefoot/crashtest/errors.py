"""What the tool cannot do, said to a person: what was expected, what was found, and what to do next."""

from __future__ import annotations

FINE, CROSSED, BAD_INPUT, MISSING_EXTRA, HARNESS_FAULT = 0, 1, 2, 3, 7


class CrashtestError(Exception):
    """The test cannot be run as it was asked for; `code` becomes the exit code."""

    def __init__(self, message: str, *, code: int = BAD_INPUT) -> None:
        """`message` ends with the next step."""
        super().__init__(message)
        self.message, self.code = message, code
