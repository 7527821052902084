"""LiteLLM pays once and sees the same again: sync, async (its own aiohttp transport), streamed, two routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import litellm
import pytest

import surefoot.http
from frameworks.lives import twice
from surefoot.testing.models import ModelServer, replies

ASK: Any = [{"role": "user", "content": "say hello"}]


def shown(answer: Any, model: str) -> str:
    """Without what LiteLLM itself makes up: the moment, and for Anthropic an id of the answer (no tool call's)."""
    made_up = {"created", "id"} if model.startswith("anthropic") else {"created"}
    return answer.model_dump_json(exclude=made_up)


def whole(**options: Any) -> Any:
    return shown(litellm.completion(messages=ASK, **options), options["model"])


def stream(**options: Any) -> Any:
    return [event.choices[0].delta.content for event in litellm.completion(messages=ASK, stream=True, **options)]


def whole_async(**options: Any) -> Any:
    async def ask() -> str:
        return shown(await litellm.acompletion(messages=ASK, **options), options["model"])

    return asyncio.run(ask())


def stream_async(**options: Any) -> Any:
    async def ask() -> list[Any]:
        events: Any = await litellm.acompletion(messages=ASK, stream=True, **options)
        return [event.choices[0].delta.content async for event in events]

    return asyncio.run(ask())


def responses_async(**options: Any) -> Any:
    async def ask() -> str:
        return shown(await litellm.aresponses(input="say hello", **options), options["model"])

    return asyncio.run(ask())


@pytest.mark.feature("replay byte-equal")
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("route", ["openai", "anthropic"])
@pytest.mark.parametrize("ask", [whole, stream, whole_async, stream_async, responses_async])
def test_paid_once_and_the_same_again(tmp_path: Path, ask: Callable[..., Any], route: str, zipped: bool) -> None:
    if ask is responses_async and route == "anthropic":
        pytest.skip("the responses endpoint is OpenAI's")
    surefoot.http.install(outside="refuse")
    with ModelServer(replies("hello big world"), compress=zipped, strict=False) as models:
        base = f"{models.url}/v1" if route == "openai" else models.url
        options = {"model": f"{route}/scripted", "api_base": base, "api_key": "k", "max_tokens": 9}
        if ask is responses_async:
            del options["max_tokens"]
        first, again = twice(tmp_path / "agents.db", lambda: ask(**options))
        assert first == again and "hello" in str(first)
        assert len(models.paid()) == 1 == len(models.asks)
