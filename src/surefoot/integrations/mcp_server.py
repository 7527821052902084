"""The receiving side for MCP servers of one's own: the same key gets the same result, and the tool's work is done once.

    @idempotent_tool(server, store="inbox.db")
    def pay(amount: int) -> str: ...

The key comes in the request's `_meta`, as `surefoot.integrations.mcp` sends it. Claims and stored results are those of
`surefoot.inbox`: a row decides who runs, before the tool begins, and holds its result before that leaves. For FastMCP
of mcp 1.x and MCPServer of 2.x alike.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from os import PathLike
from typing import Any, TypeVar, cast

from ..core.errors import UsageError
from ..inbox.call import IdempotentCall
from ..inbox.claims import Inbox
from ..inbox.once import check_expires
from .mcp_protected import Protected, client_of, running_call
from .mcp_rules import META_EFFECT, META_KEY

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_EXPIRES = timedelta(hours=24)


def current_call() -> IdempotentCall:
    """The call of the tool that is running: its `key`, `once(connection)` and `nothing_happened()`.

    UsageError where the request carried no key, or the tool is not protected.
    """
    call = running_call.get()
    if call is None:
        raise UsageError(f"this call carries no key under _meta[{META_KEY!r}], or its tool is not @idempotent")
    return call


def declaration(expires: timedelta | None = DEFAULT_EXPIRES) -> dict[str, Any]:
    """What a protected tool declares in its `_meta`, for clients that act on it."""
    seconds = check_expires(expires)
    promise = {"contract": "natural"} if seconds is None else {"contract": "keyed", "window_seconds": seconds}
    return {META_EFFECT: promise}


def idempotent_tool(
    server: Any,
    *,
    store: str | PathLike[str] | Inbox,
    transactional: bool = False,
    required: bool = False,
    scope: Callable[[Any], str] | None = None,
    expires: timedelta | None = DEFAULT_EXPIRES,
    **options: Any,
) -> Callable[[F], F]:
    """Register a protected tool, with the declaration in its `_meta`; `options` go to `server.tool(...)`."""
    options["meta"] = {**declaration(expires), **(options.get("meta") or {})}
    protect = idempotent(store=store, transactional=transactional, required=required, scope=scope, expires=expires)

    def register(function: F) -> F:
        server.tool(**options)(protect(function))
        return function

    return register


def idempotent(
    *,
    store: str | PathLike[str] | Inbox,
    transactional: bool = False,
    required: bool = False,
    scope: Callable[[Any], str] | None = None,
    expires: timedelta | None = DEFAULT_EXPIRES,
) -> Callable[[F], F]:
    """Protect a tool function: of all calls with one key, one runs it, and the others get its result.

    A `transactional` tool makes its change in `current_call().once(connection)`, so it may run again after a crash; of
    another nobody knows, and the operator of the server resolves it, as in docs/inbox.md. `required` refuses a call
    without a key. `scope(context)` names the client whose key it is; the authenticated one, unless given. A ToolError
    that the tool raises is its answer, and is kept; any other exception leaves it in doubt, or (transactional) undone.
    """
    inbox = store if isinstance(store, Inbox) else Inbox(store)
    seconds = check_expires(expires)

    def protect(function: F) -> F:
        tool = Protected(function, inbox, transactional, required, scope or client_of, expires, seconds)
        return cast("F", tool.as_tool())

    return protect
