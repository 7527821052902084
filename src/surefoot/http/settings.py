"""What a user can say about model calls: prices, endpoints of their own, and what happens outside a run."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from ..core.calls import Usage
from ..core.errors import UsageError
from .tokens import Price, check_prices, price_of

Outside = Literal["warn", "refuse", "plain"]


class NotRecorded(UserWarning):
    """Model traffic passed that no journal has: after a crash it is paid for again, and may answer differently."""


class Settings(NamedTuple):
    """One client's, or the process's."""

    outside: Outside
    endpoints: tuple[str, ...]
    prices: Mapping[str, Price]
    is_model_call: Callable[[str], bool] | None

    def is_endpoint(self, url: str) -> bool:
        """True for an address that the user named as a model's."""
        if any(url.startswith(endpoint) for endpoint in self.endpoints):
            return True
        return self.is_model_call is not None and self.is_model_call(url)

    def money(self, model: str, usage: Usage | None) -> Decimal | None:
        """What a call cost, if the table has a price for its model."""
        price = price_of(self.prices, model) if usage is not None and self.prices else None
        return None if price is None or usage is None else price.of(usage)


def settings_of(
    outside: Any = "warn",
    endpoints: Sequence[str] = (),
    prices: Mapping[str, Price] | None = None,
    is_model_call: Callable[[str], bool] | None = None,
) -> Settings:
    """Checked settings."""
    if outside not in ("warn", "refuse", "plain"):
        raise UsageError(f'outside= must be "warn", "refuse" or "plain", found {outside!r}')
    named = (endpoints,) if isinstance(endpoints, str) else tuple(endpoints)
    for endpoint in named:
        if not endpoint.startswith(("http://", "https://")):
            raise UsageError(f"endpoints= takes base URLs such as 'http://127.0.0.1:11434/v1', found {endpoint!r}")
    return Settings(outside, named, check_prices(prices or {}), is_model_call)


_told: set[str] = set()
_telling = threading.Lock()


def tell_once(what: str, message: str) -> None:
    """Warn, once a process for each `what`."""
    with _telling:
        if what in _told:
            return
        _told.add(what)
    warnings.warn(message, NotRecorded, stacklevel=2)
