"""Calls of real SDKs, each giving all that its caller gets to see, as JSON."""

from collections.abc import Callable
from typing import Any

import anthropic
import openai

ASK: Any = [{"role": "user", "content": "say hello"}]
KEY = "not-a-key"


def openai_client(url: str, http_client: Any = None, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(api_key=KEY, base_url=f"{url}/v1", http_client=http_client, **options)


def openai_async(url: str, http_client: Any = None, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", http_client=http_client, **options)


def anthropic_client(url: str, http_client: Any = None, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key=KEY, base_url=url, http_client=http_client, **options)


def anthropic_async(url: str, http_client: Any = None, **options: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key=KEY, base_url=url, http_client=http_client, **options)


def chat(client: openai.OpenAI, **more: Any) -> list[str]:
    raw = client.chat.completions.with_raw_response.create(model="gpt-scripted", messages=ASK, **more)
    return [raw.parse().model_dump_json(), repr(sorted(raw.headers.items()))]


def chat_stream(client: openai.OpenAI, **more: Any) -> list[str]:
    options: Any = {"stream": True, "stream_options": {"include_usage": True}, **more}
    return [e.model_dump_json() for e in client.chat.completions.create(model="gpt-scripted", messages=ASK, **options)]


def responses(client: openai.OpenAI) -> list[str]:
    return [client.responses.create(model="gpt-scripted", input="say hello").model_dump_json()]


def responses_stream(client: openai.OpenAI) -> list[str]:
    stream = client.responses.create(model="gpt-scripted", input="say hello", stream=True)
    return [event.model_dump_json() for event in stream]


def messages(client: anthropic.Anthropic) -> list[str]:
    return [client.messages.create(model="claude-scripted", max_tokens=9, messages=ASK).model_dump_json()]


def messages_stream(client: anthropic.Anthropic) -> list[str]:
    with client.messages.stream(model="claude-scripted", max_tokens=9, messages=ASK) as stream:
        events = [event.model_dump_json() for event in stream]
        return [*events, stream.get_final_message().model_dump_json()]


async def chat_async(client: openai.AsyncOpenAI) -> list[str]:
    return [(await client.chat.completions.create(model="gpt-scripted", messages=ASK)).model_dump_json()]


async def chat_stream_async(client: openai.AsyncOpenAI) -> list[str]:
    stream = await client.chat.completions.create(model="gpt-scripted", messages=ASK, stream=True)
    return [event.model_dump_json() async for event in stream]


async def responses_async(client: openai.AsyncOpenAI) -> list[str]:
    return [(await client.responses.create(model="gpt-scripted", input="say hello")).model_dump_json()]


async def responses_stream_async(client: openai.AsyncOpenAI) -> list[str]:
    stream = await client.responses.create(model="gpt-scripted", input="say hello", stream=True)
    return [event.model_dump_json() async for event in stream]


async def messages_async(client: anthropic.AsyncAnthropic) -> list[str]:
    return [(await client.messages.create(model="claude-scripted", max_tokens=9, messages=ASK)).model_dump_json()]


async def messages_stream_async(client: anthropic.AsyncAnthropic) -> list[str]:
    async with client.messages.stream(model="claude-scripted", max_tokens=9, messages=ASK) as stream:
        events = [event.model_dump_json() async for event in stream]
        return [*events, (await stream.get_final_message()).model_dump_json()]


Call = tuple[Callable[..., Any], Callable[..., Any]]
SYNC: list[Call] = [
    (openai_client, chat),
    (openai_client, chat_stream),
    (openai_client, responses),
    (openai_client, responses_stream),
    (anthropic_client, messages),
    (anthropic_client, messages_stream),
]
ASYNC: list[Call] = [
    (openai_async, chat_async),
    (openai_async, chat_stream_async),
    (openai_async, responses_async),
    (openai_async, responses_stream_async),
    (anthropic_async, messages_async),
    (anthropic_async, messages_stream_async),
]
