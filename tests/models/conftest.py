"""A model that calls two tools at once, thinks, and counts what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.testing.models import Ask, ModelServer, Say, ToolCall, Usage

WEATHER = ("Paris", "Rome")


def weather(ask: Ask) -> Say:
    """Asks for the weather of two cities in one turn, then says it."""
    if not ask.results:
        calls = tuple(ToolCall(name="weather", arguments={"city": city}) for city in WEATHER)
        usage = Usage(input=100, output=30, cached=64, reasoning=12)
        return Say(text="Let me look.", thinking="two cities", calls=calls, usage=usage)
    return Say(text="It is " + " and ".join(result.text for result in ask.results))


Serve = Callable[..., ModelServer]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start model servers that are closed after the test."""
    servers: list[ModelServer] = []

    def start(planner: Any = weather, **options: Any) -> ModelServer:
        servers.append(ModelServer(planner, record=tmp_path / f"record{len(servers)}.jsonl", **options).start())
        return servers[-1]

    yield start
    for server in servers:
        server.close()
