"""The real Anthropic SDK finds in the scripted server what it finds in the real endpoint."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest

from surefoot.testing.models import Meets, ModelServer, replies
from tests.models.conftest import Serve

TOOL: Any = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
QUESTION: Any = [{"role": "user", "content": "How is the weather?"}]
zipped = pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])


def client(server: ModelServer, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key="any", **{"max_retries": 0, "timeout": 30.0, **options})


def results(message: anthropic.types.Message) -> Any:
    uses: list[Any] = [block for block in message.content if block.type == "tool_use"]
    return [{"type": "tool_result", "tool_use_id": use.id, "content": use.input["city"]} for use in uses]


@zipped
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_conversation_with_two_parallel_tools(serve: Serve, compress: bool, streamed: bool) -> None:
    server = serve(compress=compress)
    asked: Any = {"model": "claude", "max_tokens": 99, "messages": QUESTION, "tools": [TOOL], "system": "Be brief."}
    with client(server) as sdk:
        if streamed:
            with sdk.messages.stream(**asked) as stream:
                assert "".join(stream.text_stream) == "Let me look."
                message = stream.get_final_message()
        else:
            message = sdk.messages.create(**asked)
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert message.stop_reason == "tool_use"
        used = message.usage
        assert (used.input_tokens, used.cache_read_input_tokens, used.output_tokens) == (36, 64, 30)
        told: Any = [
            *QUESTION,
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results(message)},
        ]
        last: Any = sdk.messages.create(model="claude", max_tokens=99, messages=told, tools=[TOOL])
    assert last.content[0].text == "It is Paris and Rome"
    assert last.stop_reason == "end_turn"
    assert server.asks[0].turns[0].role == "system"
    assert [line.number for line in server.paid()] == [1, 2]


async def test_the_asynchronous_client_streams_too(serve: Serve) -> None:
    server = serve(replies("one two three"))
    sdk = anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0)
    async with sdk, sdk.messages.stream(model="c", max_tokens=9, messages=QUESTION) as stream:
        assert [piece async for piece in stream.text_stream] == ["one ", "two ", "three"]


def test_errors_are_told_apart(serve: Serve) -> None:
    server = serve(replies("yes"))
    server.next(Meets(error=429, retry_after=0.01), Meets(error=500), Meets(error=529))
    kinds = (anthropic.RateLimitError, anthropic.InternalServerError, anthropic.APIStatusError)
    with client(server) as sdk:
        for kind in kinds:
            with pytest.raises(kind):
                sdk.messages.create(model="c", max_tokens=9, messages=QUESTION)
    server.next(Meets(error=529, retry_after=0.01))
    with client(server, max_retries=1) as sdk:
        made = sdk.messages.create(model="c", max_tokens=9, messages=QUESTION)
    assert made._request_id is not None
    assert len(server.paid()) == 1


def test_a_stream_that_fails_or_is_cut(serve: Serve) -> None:
    server = serve(replies("one two three"))
    asked: Any = {"model": "c", "max_tokens": 9, "messages": QUESTION}
    with client(server) as sdk:
        server.next(Meets(error_event=4))
        with pytest.raises(anthropic.APIStatusError, match="in the stream"), sdk.messages.stream(**asked) as stream:
            stream.get_final_message()
        assert server.paid() == []
        server.next(Meets(cut=4))
        broken = (anthropic.APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)
        with pytest.raises(broken), sdk.messages.stream(**asked) as stream:
            stream.get_final_message()
    assert len(server.paid()) == 1


USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]}


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([*QUESTION, USE], "without `tool_result` blocks immediately after: toolu_1"),
        ([*QUESTION, USE, *QUESTION], "messages.1: `tool_use` ids were found without"),
        ([RESULT], "unexpected `tool_use_id`"),
        ([*QUESTION, USE, RESULT, USE, RESULT], "must be unique"),
        ([{"role": "assistant", "content": "x"}], "first message"),
    ],
)
def test_what_the_endpoint_refuses(serve: Serve, messages: Any, why: str) -> None:
    with client(serve()) as sdk, pytest.raises(anthropic.BadRequestError, match=why):
        sdk.messages.create(model="c", max_tokens=9, messages=messages)


def test_what_stands_beside_the_model(serve: Serve) -> None:
    server = serve()
    with client(server) as sdk:
        assert sdk.messages.count_tokens(model="c", messages=QUESTION).input_tokens > 0
        with pytest.raises(anthropic.NotFoundError, match="nothing is served"):
            sdk.post("/v1/nothing", cast_to=object, body={})
    assert server.asks == []
