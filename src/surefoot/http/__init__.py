"""Model calls in the run's journal, at the HTTP client: for every SDK and framework on httpx or httpx2.

`install()` covers the whole process; `client()`, `async_client()` and `transport()` cover one SDK client.
"""

from ..runtime.calls import scope
from .install import install
from .settings import NotRecorded
from .tokens import Price
from .transports import async_client, async_transport, client, transport

__all__ = ["NotRecorded", "Price", "async_client", "async_transport", "client", "install", "scope", "transport"]
