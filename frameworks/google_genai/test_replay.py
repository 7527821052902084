"""google-genai pays once and sees the same again: sync and async, whole and streamed, with gzip and without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import types

import surefoot.http
from frameworks.lives import twice
from surefoot.testing.models import ModelServer, Say, ToolCall, replies

ASK: Any = "say hello"
CONFIG = types.GenerateContentConfig(
    tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="charge")])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


def client_of(url: str, **options: Any) -> genai.Client:
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url, **options))


def whole(client: genai.Client) -> Any:
    return client.models.generate_content(model="g", contents=ASK, config=CONFIG).model_dump_json()


def stream(client: genai.Client) -> Any:
    events = client.models.generate_content_stream(model="g", contents=ASK, config=CONFIG)
    return [event.model_dump_json() for event in events]


def whole_async(client: genai.Client) -> Any:
    async def ask() -> str:
        return (await client.aio.models.generate_content(model="g", contents=ASK, config=CONFIG)).model_dump_json()

    return asyncio.run(ask())


def stream_async(client: genai.Client) -> Any:
    async def ask() -> list[str]:
        events = await client.aio.models.generate_content_stream(model="g", contents=ASK, config=CONFIG)
        return [event.model_dump_json() async for event in events]

    return asyncio.run(ask())


@pytest.mark.feature("replay byte-equal")
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("way", ["install", "client"])
@pytest.mark.parametrize("ask", [whole, stream, whole_async, stream_async])
def test_paid_once_and_the_same_again(tmp_path: Path, ask: Callable[..., Any], way: str, zipped: bool) -> None:
    say = Say(text="hello", calls=(ToolCall(name="charge"), ToolCall(name="charge")))
    with ModelServer(replies(say), compress=zipped, strict=False) as models:
        if way == "install":
            surefoot.http.install(outside="refuse")
            options: dict[str, Any] = {}
        else:
            surefoot.http.install(outside="plain")
            options = {
                "httpx_client": surefoot.http.client(),
                "httpx_async_client": surefoot.http.async_client(),
            }
        first, again = twice(tmp_path / "agents.db", lambda: ask(client_of(models.url, **options)))
        assert first == again and "call_" in str(first) and "total_token_count" in str(first)
        assert len(models.paid()) == 1
