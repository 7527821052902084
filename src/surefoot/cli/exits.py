"""Exit codes, and the one exception that carries one."""

from __future__ import annotations

from enum import IntEnum

from ..core.errors import Damaged, RunNotFound, StoreError, SurefootError, UsageError


class Exit(IntEnum):
    """What a script can rely on; the package's docstring explains each."""

    FINE = 0
    ATTENTION = 1
    BAD_INPUT = 2
    MISSING_EXTRA = 3
    NOT_FOUND = 4
    STORE = 5
    ILLEGAL = 6


class Failed(Exception):
    """The command cannot do what it was asked; `message` says what was expected, what was found and what to do."""

    def __init__(self, code: Exit, message: str) -> None:
        """`code` becomes the exit code."""
        super().__init__(message)
        self.code, self.message = code, message


def failure_of(error: SurefootError) -> Failed:
    """The exit code that an error of Surefoot stands for."""
    match error:
        case RunNotFound():
            code = Exit.NOT_FOUND
        case StoreError() | Damaged():
            code = Exit.STORE
        case UsageError():
            code = Exit.BAD_INPUT
        case _:
            code = Exit.ILLEGAL
    return Failed(code, str(error))
