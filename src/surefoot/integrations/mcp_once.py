"""One attempt is one `tools/call`, on whatever the session runs: HTTP, stdio, memory.

A session posts listings, notices and answers to the same path, some from tasks of its own, so requests cannot be
counted where they leave, as those of other clients are. What is counted is what the session is asked to send.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from ..effects.guard import watching


def call_once(session: Any, server: str) -> None:
    """Have this session stop the second call of a tool in one attempt; a session that is known already is left alone.

    What is stopped raises `SecondRequest`, which is no Exception, so that whatever tries again does not.
    """
    send = getattr(session, "send_request", None)
    if send is None or hasattr(send, "surefoot_server"):
        return

    @wraps(send)
    async def send_request(request: Any, *args: Any, **options: Any) -> Any:
        held = watching.get()
        asked = getattr(request, "root", request)  # mcp 1.x wraps it
        if held is not None and asked.method == "tools/call":
            held.call(server, asked.params.name)
        return await send(request, *args, **options)

    sending: Any = send_request
    sending.surefoot_server = server
    session.send_request = sending
