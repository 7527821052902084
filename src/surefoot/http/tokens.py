"""Tokens of an answer, as each API reports them, and what they cost by a table of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

import msgspec
from msgspec.structs import force_setattr

from ..core.budget import amount
from ..core.calls import Usage
from ..core.errors import UsageError

MILLION = Decimal(1_000_000)


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Money for a million tokens, as Decimals, ints or texts such as "1.25". No price is known that you do not give.

    `cached` (read from the provider's cache) and `written` (into it) cost as much as `input` where they are left out.
    """

    input: Any
    output: Any
    cached: Any = None
    written: Any = None

    def __post_init__(self) -> None:
        """Amounts are kept as Decimals; a float is refused, since it is not an exact amount."""
        for name in ("input", "output", "cached", "written"):
            value = getattr(self, name)
            if value is not None:
                force_setattr(self, name, amount(value, f"a price's {name}"))

    def of(self, usage: Usage) -> Decimal:
        """What a call cost."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.written is None else self.written
        plain = max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0)
        read_in = plain * self.input + usage.cached_tokens * cached + usage.written_tokens * written
        return (read_in + usage.output_tokens * self.output) / MILLION


def check_prices(prices: Mapping[str, Price]) -> dict[str, Price]:
    """A table of prices by model."""
    for model, price in prices.items():
        if not isinstance(cast("Any", price), Price):
            raise UsageError(f"prices[{model!r}] must be a surefoot.http.Price, found {price!r}")
    return dict(prices)


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The price of a model: by its name, else by the longest name in the table that it begins with before a `-` or `@`.

    Providers answer for `gpt-5` as `gpt-5-2026-01-01`; a table names the first.
    """
    if model in prices:
        return prices[model]
    begins = [name for name in prices if model.startswith((f"{name}-", f"{name}@", f"{name}:"))]
    return prices[max(begins, key=len)] if begins else None


class Tally:
    """Gathers what an answer, or the events of one, report; what comes later counts."""

    def __init__(self) -> None:
        """Nothing was reported yet."""
        self._found: dict[str, int] = {}

    def see(self, content: Any) -> None:
        """Look at a whole answer, or at one event."""
        if not isinstance(content, dict):
            return
        answer = cast("dict[str, Any]", content)
        for holder in (answer, answer.get("response"), answer.get("message")):
            if isinstance(holder, dict):
                fields = cast("dict[str, Any]", holder)
                for name in ("usage", "usageMetadata"):
                    if isinstance(fields.get(name), dict):
                        self._add(cast("dict[str, Any]", fields[name]))

    def _add(self, reported: dict[str, Any]) -> None:
        for name, value in reported.items():
            if type(value) is int and value >= 0:
                self._found[name] = value
            elif isinstance(value, dict):
                for inner, count in cast("dict[str, Any]", value).items():
                    if type(count) is int and count >= 0:
                        self._found[f"{name}.{inner}"] = count

    def usage(self) -> Usage | None:
        """What the call used, or None if nothing was reported."""
        found = self._found
        if not found:
            return None
        get = found.get
        if "promptTokenCount" in found:
            thoughts = get("thoughtsTokenCount", 0)
            return Usage(
                input_tokens=found["promptTokenCount"] + get("toolUsePromptTokenCount", 0),
                output_tokens=get("candidatesTokenCount", 0) + thoughts,
                cached_tokens=get("cachedContentTokenCount", 0),
                reasoning_tokens=thoughts,
            )
        if "cache_read_input_tokens" in found or "cache_creation_input_tokens" in found:
            cached, written = get("cache_read_input_tokens", 0), get("cache_creation_input_tokens", 0)
            total = get("input_tokens", 0) + cached + written
            out = get("output_tokens", 0)
            return Usage(input_tokens=total, output_tokens=out, cached_tokens=cached, written_tokens=written)
        return Usage(
            input_tokens=get("input_tokens", get("prompt_tokens", 0)),
            output_tokens=get("output_tokens", get("completion_tokens", 0)),
            cached_tokens=get("input_tokens_details.cached_tokens", get("prompt_tokens_details.cached_tokens", 0)),
            reasoning_tokens=get(
                "output_tokens_details.reasoning_tokens", get("completion_tokens_details.reasoning_tokens", 0)
            ),
        )
