"""What can be wrong with a key. `once` raises these; the middleware answers them as 422 and 409."""

from __future__ import annotations

from ..core.errors import SurefootError


class KeyReused(SurefootError):
    """The key belongs to another request; nothing was done for this one."""

    def __init__(self, key: str, scope: str) -> None:
        super().__init__(
            f"key {key!r}{scope and f' (scope {scope!r})'} belongs to another request. Nothing was done for this one: "
            "send the first request unchanged to get its result, or use a new key for a new request."
        )
        self.key, self.scope = key, scope


class InProgress(SurefootError):
    """Another call under this key has not ended; nothing was done for this one."""

    def __init__(self, key: str, scope: str, why: str) -> None:
        super().__init__(
            f"key {key!r}{scope and f' (scope {scope!r})'} is in progress: {why}. Nothing was done for this call; "
            "call again later, with the same key and request."
        )
        self.key, self.scope, self.why = key, scope, why
