"""Narrowing: what an owner knows better than the catalog, said in the code. Contradictions are refused."""

from __future__ import annotations

from typing import Any

from .model import Receiver


def narrow(receiver: Receiver, **changes: Any) -> Receiver:
    """See `with_`."""
    raise NotImplementedError


def build(id: str, facts: dict[str, Any]) -> Receiver:
    """See `define`."""
    raise NotImplementedError
