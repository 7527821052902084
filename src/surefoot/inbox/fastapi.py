"""For FastAPI: a route class that protects its endpoints, and a dependency that gives them their call.

    router = APIRouter(route_class=idempotent_route(store="inbox.db", transactional=True))

    @router.post("/orders")
    def order(order: Order, call: Idempotency) -> dict: ...

The middleware works with FastAPI too; this is for some endpoints of an application.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute

from .call import IdempotentCall, idempotency
from .claims import Inbox
from .middleware import IdempotencyMiddleware


def idempotent_route(**options: Any) -> type[APIRoute]:
    """A class for `APIRouter(route_class=...)`; options as of `IdempotencyMiddleware`. Its routes share one store."""
    options["store"] = options["store"] if isinstance(options.get("store"), Inbox) else Inbox(options.get("store", ""))

    class IdempotentRoute(APIRoute):
        """Protected as the options say."""

        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            self._guarded = IdempotencyMiddleware(super().handle, **options)

        async def handle(self, scope: Any, receive: Any, send: Any) -> None:
            """One request; a method that this route does not have is refused without a claim."""
            guarded = scope["method"] in (self.methods or ())
            await (self._guarded if guarded else super().handle)(scope, receive, send)

    return IdempotentRoute


def _call(
    request: Request,
    idempotency_key: Annotated[
        str | None, Header(description="A new UUID for each new request; the same one when it is sent again.")
    ] = None,
) -> IdempotentCall:
    return idempotency(request)


Idempotency = Annotated[IdempotentCall, Depends(_call)]
"""The type of a parameter that takes the call of a protected request."""
