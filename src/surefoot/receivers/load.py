"""Reads receivers from package files: one TOML file per receiver, named by its id.

So one receiver costs one small file, there is no index that could disagree with the files, and whoever adds a service
adds one file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable

import msgspec

from ..core.errors import UsageError
from .model import Receiver

FOLDER = os.path.join(os.path.dirname(__file__), "data")
_ENDING = ".toml"


@functools.cache
def names() -> tuple[str, ...]:
    """The ids of all receivers in the catalog, sorted."""
    return tuple(sorted(name.removesuffix(_ENDING) for name in os.listdir(FOLDER) if name.endswith(_ENDING)))


@functools.cache
def load(name: str) -> Receiver:
    """The receiver of that id; UsageError with the nearest names for one that is not there."""
    if name not in names():
        raise UsageError(f"no receiver is named {name!r}; {_nearest(name, names())}")
    return decode(_read(name), name)


def decode(content: bytes, name: str) -> Receiver:
    """One receiver from TOML; UsageError for a field, a type or a word that is not known."""
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(content.decode()), Receiver)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"receiver {name!r} cannot be read: {error}; `surefoot.receivers.model` has the fields"
        ) from None


def _read(name: str) -> bytes:
    with open(os.path.join(FOLDER, name + _ENDING), "rb") as file:
        return file.read()


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # takes longer than reading a receiver

    known = tuple(known)
    begins = [other for other in known if other.split(".")[0] == name.split(".")[0]]
    near = begins or difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    nearest = f"the nearest are {', '.join(near[:6])}" if near else "none is near"
    return f"{nearest}. `surefoot receivers list` shows all; `receivers.define(...)` describes one of your own"
