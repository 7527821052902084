"""`@idempotent`: protects one Starlette endpoint. It is the middleware around that endpoint alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.errors import UsageError
from .exchange import Receive, Send
from .middleware import IdempotencyMiddleware


class IdempotentEndpoint:
    """An endpoint with its protection; give it to `Route(path, endpoint, methods=[...])`."""

    def __init__(self, endpoint: Callable[..., Any], options: dict[str, Any]) -> None:
        """Made by `idempotent`."""
        from starlette.routing import request_response

        functools.update_wrapper(self, endpoint)
        self._app = IdempotencyMiddleware(request_response(endpoint), **options)
        self.inbox = self._app.inbox

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request (ASGI)."""
        await self._app(scope, receive, send)


def idempotent(**options: Any) -> Callable[[Callable[..., Any]], IdempotentEndpoint]:
    """Protect one Starlette endpoint (`def` or `async def`, taking a Request); options as of `IdempotencyMiddleware`.

    In FastAPI use `surefoot.inbox.fastapi.idempotent_route` instead, since its endpoints take parameters.
    """

    def decorate(endpoint: Callable[..., Any]) -> IdempotentEndpoint:
        if not callable(endpoint) or isinstance(endpoint, type):
            raise UsageError(
                f"@idempotent(...) protects a function that takes a Request, found {endpoint!r}; protect a class with "
                "Route(..., middleware=[Middleware(IdempotencyMiddleware, ...)])"
            )
        return IdempotentEndpoint(endpoint, options)

    return decorate
