"""An MCP server over HTTP as a process of its own, of either version of mcp; its ledger is fsynced before it answers.

It kills the agent where a file in the folder says so: "before charge" (the call has arrived, nothing is done) or "gap
charge" (done, on disk, and the answer not sent). With a file `die` it kills itself there. Both happen once.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from surefoot.inbox import create_inbox_table
from surefoot.integrations.mcp_server import current_call, idempotent_tool
from surefoot.testing.ledger import Ledger, Line, read_ledger

try:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Server
    from mcp.types import CallToolResult, ElicitRequest, ElicitRequestFormParams, InputRequiredResult, TextContent
except ImportError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP as Server

import uvicorn
from mcp.types import ToolAnnotations

IS_NEW = Server.__name__ == "MCPServer"

Json = dict[str, Any]


class Books:
    """What the shop has done, and where it kills."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")

    def kill_here(self, where: str) -> None:
        """The agent dies here, while this call of its is being served."""
        order = self.folder / "kill"
        if order.exists() and order.read_text() == where:
            order.unlink()
            os.kill(int((self.folder / "agent.pid").read_text()), signal.SIGKILL)

    def die_here(self) -> None:
        """The shop itself dies here."""
        order = self.folder / "die"
        if order.exists():
            order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def act(self, name: str, amount: int, key: str = "") -> str:
        """Change the world: one line of the ledger."""
        self.kill_here(f"before {name}")
        self.ledger.add(Line(what="performed", name=name, at=time.time(), key=key, body=json.dumps(amount)))
        self.kill_here(f"gap {name}")
        self.die_here()
        return f"{name} {amount} done"

    def note(self, what: str, name: str) -> None:
        """Write down what changed nothing."""
        self.ledger.add(Line(what=what, name=name, at=time.time()))

    def done(self, name: str) -> list[Json]:
        """What was done under this name."""
        lines = read_ledger(self.folder / "ledger")
        return [{"done": line.name} for line in lines if line.what == "performed" and line.name == name]


def make(folder: Path, port: int) -> Any:
    """The server with all its tools."""
    books, inbox = Books(folder), str(folder / "inbox.db")
    options: Json = {} if IS_NEW else {"host": "127.0.0.1", "port": port}
    server = Server("shop", **options)
    protected_tools(server, books, inbox)
    plain_tools(server, books)
    if IS_NEW:
        ask_people(server, books, inbox)
    return server


def protected_tools(server: Any, books: Books, inbox: str) -> None:
    """Tools that honour the key."""

    @idempotent_tool(server, store=inbox, name="keyed")
    def keyed_act(name: str, amount: int) -> str:
        """Acts once for each key."""
        return books.act(name, amount, current_call().key)

    @idempotent_tool(server, store=inbox, transactional=True, name="transactional")
    def transactional_act(name: str, amount: int) -> dict[str, Any]:
        """Acts in its own database, together with its result."""
        database = sqlite3.connect(books.folder / "shop.db")
        create_inbox_table(database)
        database.execute("CREATE TABLE IF NOT EXISTS orders (name TEXT)")
        database.commit()
        books.kill_here(f"before {name}")
        with current_call().once(database) as call:
            if call.first:
                database.execute("INSERT INTO orders VALUES (?)", (name,))
                books.die_here()
                call.result = {"order": name}
        books.kill_here(f"gap {name}")
        return call.result


def plain_tools(server: Any, books: Books) -> None:
    """Tools that know no key."""

    @server.tool(name="lookup", meta={"surefoot/effect": {"contract": "lookup", "lag_seconds": 0.2, "ask": "find"}})
    def lookup_act(name: str, amount: int) -> str:
        """Ignores keys, and can be asked."""
        return books.act(name, amount)

    @server.tool()
    def find(name: str, amount: int) -> list[dict[str, Any]]:
        """What was done under this name."""
        books.note("looked_up", name)
        return books.done(name)

    @server.tool(name="opaque")
    def opaque_act(name: str, amount: int) -> str:
        """Promises nothing."""
        return books.act(name, amount)

    @server.tool(annotations=ToolAnnotations(readOnlyHint=True))
    def balance(name: str, amount: int) -> str:
        """Reads."""
        books.note("read", name)
        books.kill_here(f"gap {name}")
        return f"balance {len(books.done(name))} {amount}"

    @server.tool(annotations=ToolAnnotations(idempotentHint=True, destructiveHint=False))
    def set_limit(name: str, amount: int) -> str:
        """Sets, so that a repeat does no harm."""
        return books.act(name, amount)


def ask_people(server: Any, books: Books, inbox: str) -> None:
    """A tool that asks before it acts; its question outlives the agent."""

    @idempotent_tool(server, store=inbox, name="close")
    async def close_account(name: str, amount: int, context: Context) -> CallToolResult | InputRequiredResult:
        """Closes an account, if a person says so."""
        books.note("arrived", f"{name} {'again' if context.input_responses else 'first'}")
        if not context.input_responses:
            schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
            asked = ElicitRequest(params=ElicitRequestFormParams(message="Really close?", requested_schema=schema))
            return InputRequiredResult(input_requests={"sure": asked}, request_state=f"state of {name}")
        said = context.input_responses["sure"]
        assert context.request_state == f"state of {name}"
        text = books.act(name, amount) if said.action == "accept" else f"kept: {said.action}"
        return CallToolResult(content=[TextContent(type="text", text=text)])


def serve(say: Callable[[str], object], folder: str, port: int) -> None:
    """Until it is killed."""
    server = make(Path(folder), port)
    if IS_NEW:
        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="error")
    else:
        server.run(transport="streamable-http")
