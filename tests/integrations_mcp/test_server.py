"""The server's side alone: what each call under a key is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot import UsageError
from surefoot.inbox import Answer, Inbox
from surefoot.integrations.mcp import META_EFFECT, META_KEY
from surefoot.integrations.mcp_server import current_call, idempotent, idempotent_tool

pytest.importorskip("mcp")
try:
    from mcp.client.client import Client
    from mcp.server.mcpserver import MCPServer as Server
    from mcp.server.mcpserver.exceptions import ToolError
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server
    from mcp.server.fastmcp.exceptions import ToolError
    from mcp.shared import memory

    Client = memory.create_connected_server_and_client_session

Call = Callable[..., Awaitable[Any]]


class Shop:
    """Two tools, and how often they ran."""

    def __init__(self, folder: Path) -> None:
        self.ran: list[Any] = []
        self.server: Any = Server("shop")
        self.inbox = Inbox(folder / "inbox.db")
        self.fails, self.ran_on = "", False
        self.hold: asyncio.Event | None = None
        self.began, self.ended = asyncio.Event(), asyncio.Event()

        @idempotent_tool(self.server, store=self.inbox, name="pay")
        async def pay(amount: int, note: str = "") -> dict[str, Any]:
            """Pays."""
            self.ran.append(amount)
            self.began.set()
            if self.hold is not None:
                try:
                    await self.hold.wait()
                    self.ran_on = True
                finally:
                    self.ended.set()
            if self.fails == "on purpose":
                raise ToolError("too much")
            if self.fails:
                raise ValueError("broke")
            return {"paid": amount, "key": current_call().key if note == "key" else ""}

        @self.server.tool()
        @idempotent(store=self.inbox, required=True, transactional=True)
        def careless(amount: int) -> str:
            """Says that it is transactional, and is not."""
            self.ran.append(amount)
            return "done"


async def call(shop: Shop, tool: str, key: str | None = "k1", **arguments: Any) -> tuple[bool, str]:
    """(is it an error, its text)."""
    async with Client(getattr(shop.server, "_mcp_server", shop.server)) as client:
        meta = {} if key is None else {META_KEY: key}
        result = await client.call_tool(tool, arguments, meta=meta)
        failed = getattr(result, "is_error", None) or getattr(result, "isError", False)
        return bool(failed), result.content[0].text


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


async def test_the_same_key_gets_the_same_result_and_the_work_is_done_once(shop: Shop) -> None:
    first = await call(shop, "pay", amount=5, note="key")
    assert first == await call(shop, "pay", amount=5, note="key") and not first[0] and "k1" in first[1]
    assert shop.ran == [5]
    await call(shop, "pay", "k2", amount=5)
    assert shop.ran == [5, 5]


async def test_without_a_key_it_is_a_plain_tool_unless_a_key_is_required(shop: Shop) -> None:
    await call(shop, "pay", None, amount=5)
    await call(shop, "pay", None, amount=5)
    assert shop.ran == [5, 5]
    failed, text = await call(shop, "careless", None, amount=5)
    assert failed and "urn:surefoot:inbox:key-missing" in text and len(shop.ran) == 2


async def test_another_request_under_the_key_is_refused(shop: Shop) -> None:
    await call(shop, "pay", amount=5)
    failed, text = await call(shop, "pay", amount=6)
    assert failed and "urn:surefoot:inbox:key-reused" in text and shop.ran == [5]


async def test_an_error_on_purpose_is_an_answer_and_is_kept(shop: Shop) -> None:
    shop.fails = "on purpose"
    failed, text = await call(shop, "pay", amount=5)
    assert failed and "too much" in text
    shop.fails = ""
    assert await call(shop, "pay", amount=5) == (True, text) and shop.ran == [5]


async def test_any_other_failure_leaves_it_in_doubt_until_the_operator_has_said(shop: Shop) -> None:
    shop.fails = "somehow"
    await call(shop, "pay", amount=5)
    shop.fails = ""
    failed, text = await call(shop, "pay", amount=5)
    assert failed and "urn:surefoot:inbox:outcome-unknown" in text and shop.ran == [5]
    (claim,) = shop.inbox.in_doubt()
    shop.inbox.resolve(claim.key, happened=Answer.json(200, {"paid": 5, "key": ""}))
    failed, text = await call(shop, "pay", amount=5)
    assert not failed and '"paid"' in text and shop.ran == [5]


async def test_a_second_call_while_the_first_runs_is_told_so_and_the_first_runs_on_without_its_client(
    shop: Shop,
) -> None:
    shop.hold = asyncio.Event()
    first = asyncio.create_task(call(shop, "pay", amount=5))
    await shop.began.wait()
    failed, text = await call(shop, "pay", amount=5)
    assert failed and "urn:surefoot:inbox:in-progress" in text
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    shop.hold.set()
    await shop.ended.wait()
    assert shop.ran_on
    for _ in range(1000):  # until its result is stored
        failed, text = await call(shop, "pay", amount=5)
        if "in-progress" not in text:
            break
    assert not failed and '"paid"' in text and shop.ran == [5]


async def test_a_tool_that_is_not_transactional_after_all_is_found_out_at_its_first_call(shop: Shop) -> None:
    failed, _ = await call(shop, "careless", amount=5)
    assert failed and shop.ran == [5]
    await call(shop, "careless", amount=5)
    assert shop.ran == [5]


async def test_the_promise_is_declared_and_the_key_stays_out_of_the_schema(shop: Shop) -> None:
    async with Client(getattr(shop.server, "_mcp_server", shop.server)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools["pay"].meta[META_EFFECT] == {"contract": "keyed", "window_seconds": 86400.0}
    schema = getattr(tools["pay"], "input_schema", None) or tools["pay"].inputSchema
    assert set(schema["properties"]) == {"amount", "note"}


def test_there_is_no_call_outside_a_protected_tool() -> None:
    with pytest.raises(UsageError, match="carries no key"):
        current_call()
