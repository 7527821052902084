"""One attempt is one tools/call: what calls a tool again below the gate is stopped before it leaves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot import RunWaiting, Surefoot, keyed, opaque, workflow
from surefoot.integrations.mcp import durable

from .shop import Server

Client: Any
try:
    from mcp.client.client import Client
except ImportError:  # mcp 1.x
    from mcp.shared import memory

    Client = memory.create_connected_server_and_client_session


def trying_again(session: Any, until: Callable[[Any], bool]) -> None:
    """What people put around a session: it calls again, and takes every Exception for a reason."""
    original = session.call_tool

    @functools.wraps(original)
    async def call_tool(*args: Any, **options: Any) -> Any:
        for _ in range(3):
            try:
                result = await original(*args, **options)
            except Exception:
                continue
            if until(result):
                return result
        raise ConnectionError("three times")

    session.call_tool = call_tool


def shop(ran: list[int]) -> Any:
    server: Any = Server("shop")

    @server.tool()
    def pay(amount: int) -> str:
        ran.append(amount)
        return f"paid {len(ran)}"

    return getattr(server, "_mcp_server", server) if Client.__name__ != "Client" else server


def second(result: Any) -> bool:
    return result.content[0].text == "paid 2"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_session_that_calls_again_by_itself_is_stopped_and_the_contract_decides(
    tmp_path: Path, waits: bool
) -> None:
    ran: list[int] = []

    @workflow
    async def agent() -> str:
        bank = durable(held[0], server="bank", rules={"pay": opaque() if waits else keyed(3600)})
        return (await bank.call_tool("pay", {"amount": 5})).content[0].text

    held: list[Any] = []
    async with Client(shop(ran)) as client, Surefoot(tmp_path / "agents.db") as sf:
        held.append(client)
        trying_again(getattr(client, "session", client), second)
        if waits:
            with pytest.raises(RunWaiting, match="in doubt"):
                await sf.run(agent, id="r")
            assert ran == [5]
            assert "second tools/call bank/pay" in str(sf.store.find_effects())
        else:  # the run's own second attempt, under the same key
            assert await sf.run(agent, id="r") == "paid 2" and ran == [5, 5]
            assert [effect.attempts for effect in sf.store.find_effects()] == [2]


async def test_outside_of_an_attempt_a_session_may_call_as_often_as_it_likes(tmp_path: Path) -> None:
    ran: list[int] = []
    async with Client(shop(ran)) as client:
        session = getattr(client, "session", client)
        trying_again(session, second)
        for _ in range(2):
            bank = durable(client, server="bank")
        assert (await session.call_tool("pay", {"amount": 5})).content[0].text == "paid 2"
        assert (await bank.list_tools()).tools[0].name == "pay"
