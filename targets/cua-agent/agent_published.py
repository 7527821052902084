"""cua-agent as published: a click is a request to the shop, and nothing is written down."""

from __future__ import annotations

import asyncio

from machine import checkout, post


async def press(operation: str) -> None:
    """Press one button."""
    post(operation)


if __name__ == "__main__":
    print(asyncio.run(checkout(press)))
