"""Where a request of an effect goes: pinned in the intent, so that a resend cannot go to another account."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.digest import blake2b
from ..core.errors import UsageError

Scope = Mapping[str, str]
SCOPE_NAMES = ("account", "environment", "region", "endpoint", "credential")


def pin_scope(scope: Scope, effect: str) -> tuple[tuple[str, str], ...]:
    """A scope as it is recorded: sorted; of a credential only a digest. UsageError for other names or no text."""
    pinned: list[tuple[str, str]] = []
    for name, value in sorted(scope.items()):
        if name not in SCOPE_NAMES:
            raise UsageError(
                f"effect {effect!r}: its scope names {name!r}; a scope may hold {', '.join(SCOPE_NAMES[:-1])} and "
                f"{SCOPE_NAMES[-1]}"
            )
        if not isinstance(value, str) or not value:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"effect {effect!r}: the {name} of its scope must be a text, found {value!r}")
        secret = name == "credential"
        pinned.append((name, blake2b(value.encode(), digest_size=8).hexdigest() if secret else value))
    return tuple(pinned)
