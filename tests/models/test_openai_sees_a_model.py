"""The real OpenAI SDK finds in the scripted server what it finds in the real endpoint."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from surefoot.testing.models import Meets, ModelServer, Say, replies
from tests.models.conftest import Serve

TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
FLAT: Any = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
QUESTION: Any = [{"role": "user", "content": "How is the weather?"}]
zipped = pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])


def client(server: ModelServer, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", **{"max_retries": 0, "timeout": 30.0, **options})


@zipped
def test_a_chat_of_two_parallel_tools(serve: Serve, compress: bool) -> None:
    server = serve(compress=compress)
    with client(server) as sdk:
        first = sdk.chat.completions.create(model="gpt", messages=QUESTION, tools=[TOOL])
        message = first.choices[0].message
        assert first.choices[0].finish_reason == "tool_calls"
        calls: list[Any] = message.tool_calls or []
        assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Paris", "Rome"]
        assert first.usage is not None
        assert first.usage.prompt_tokens_details is not None
        assert first.usage.completion_tokens_details is not None
        assert (first.usage.total_tokens, first.usage.prompt_tokens_details.cached_tokens) == (130, 64)
        assert first.usage.completion_tokens_details.reasoning_tokens == 12
        results = [
            {"role": "tool", "tool_call_id": c.id, "content": t} for c, t in zip(calls, ("sun", "rain"), strict=True)
        ]
        said: Any = [*QUESTION, message.model_dump(exclude_none=True), *results]
        assert (
            sdk.chat.completions.create(model="gpt", messages=said).choices[0].message.content == "It is sun and rain"
        )
    assert [ask.answers for ask in server.asks] == [0, 1]
    assert [line.number for line in server.paid()] == [1, 2]


@zipped
def test_a_streamed_chat_is_the_same_in_pieces(serve: Serve, compress: bool) -> None:
    server = serve(compress=compress)
    with (
        client(server) as sdk,
        sdk.chat.completions.stream(
            model="gpt", messages=QUESTION, tools=[TOOL], stream_options={"include_usage": True}
        ) as stream,
    ):
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert choice.message.content == "Let me look."
    assert [json.loads(call.function.arguments)["city"] for call in choice.message.tool_calls or []] == [
        "Paris",
        "Rome",
    ]
    assert choice.finish_reason == "tool_calls"
    assert final.usage is not None
    assert final.usage.total_tokens == 130


async def test_the_asynchronous_client_streams_too(serve: Serve) -> None:
    server = serve(replies("one two three"))
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as sdk:
        stream = await sdk.chat.completions.create(model="gpt", messages=QUESTION, stream=True)
        pieces = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
    assert "".join(piece or "" for piece in pieces) == "one two three"
    assert len(pieces) > 3


def test_two_answers_to_the_same_request_have_different_ids(serve: Serve) -> None:
    server = serve()
    with client(server) as sdk:
        one, two = (sdk.chat.completions.create(model="gpt", messages=QUESTION, tools=[TOOL]) for _ in range(2))
    assert one.id != two.id
    assert one._request_id != two._request_id
    calls = [[call.id for call in made.choices[0].message.tool_calls or []] for made in (one, two)]
    assert len(set(calls[0] + calls[1])) == 4
    assert len({line.key for line in server.paid()}) == 1  # the same request, paid twice


def test_a_parsed_answer(serve: Serve) -> None:
    class Weather(BaseModel):
        city: str

    server = serve(replies('{"city": "Oslo"}'))
    with client(server) as sdk:
        chat = sdk.chat.completions.parse(model="gpt", messages=QUESTION, response_format=Weather)
        assert chat.choices[0].message.parsed == Weather(city="Oslo")
        assert sdk.responses.parse(model="gpt", input="?", text_format=Weather).output_parsed == Weather(city="Oslo")


@zipped
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_responses_with_reasoning_tools_and_what_is_sent_back(serve: Serve, compress: bool, streamed: bool) -> None:
    server = serve(compress=compress)
    with client(server) as sdk:
        asked: Any = {"model": "gpt", "input": "weather?", "tools": [FLAT]}
        if streamed:
            with sdk.responses.stream(**asked) as stream:
                first = stream.get_final_response()
        else:
            first = sdk.responses.create(**asked)
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        assert first.output_text == "Let me look."
        assert first.usage is not None
        assert (first.usage.total_tokens, first.usage.input_tokens_details.cached_tokens) == (130, 64)
        assert first.usage.output_tokens_details.reasoning_tokens == 12
        calls: list[Any] = [item for item in first.output if item.type == "function_call"]
        outputs: list[Any] = [
            {"type": "function_call_output", "call_id": call.call_id, "output": json.loads(call.arguments)["city"]}
            for call in calls
        ]
        history: Any = [{"role": "user", "content": "weather?"}, *(i.to_dict() for i in first.output), *outputs]
        assert sdk.responses.create(model="gpt", input=history).output_text == "It is Paris and Rome"
        assert sdk.responses.create(model="gpt", previous_response_id=first.id, input=outputs).output_text == (
            "It is Paris and Rome"
        )
        with pytest.raises(openai.BadRequestError, match="not found"):
            sdk.responses.create(model="gpt", previous_response_id="resp_unknown", input="?")


def test_a_rate_limit_is_waited_out_and_is_not_paid(serve: Serve) -> None:
    server = serve(replies("late"))
    server.next(Meets(error=429, retry_after=0.01), Meets(error=500))
    with client(server, max_retries=0) as sdk:
        with pytest.raises(openai.RateLimitError) as limited:
            sdk.chat.completions.create(model="gpt", messages=QUESTION)
        assert limited.value.response.headers["retry-after-ms"] == "10"
        with pytest.raises(openai.InternalServerError):
            sdk.chat.completions.create(model="gpt", messages=QUESTION)
    server.next(Meets(error=429, retry_after=0.01), Meets(error=503, retry_after=0.01))
    with client(server, max_retries=2) as sdk:
        assert sdk.chat.completions.create(model="gpt", messages=QUESTION).choices[0].message.content == "late"
    assert [line.number for line in server.paid()] == [5]
    assert [line.what for line in server.service.ledger.lines()] == ["failed"] * 4 + ["paid"]


def test_only_the_named_model_fails(serve: Serve) -> None:
    server = serve(replies("yes"))
    server.next(Meets(error=500, model="primary"))
    with client(server) as sdk:
        assert sdk.chat.completions.create(model="backup", messages=QUESTION).choices[0].message.content == "yes"
        with pytest.raises(openai.InternalServerError):
            sdk.chat.completions.create(model="primary", messages=QUESTION)


def test_an_error_inside_a_stream_that_began_well(serve: Serve) -> None:
    server = serve(replies("one two three"))
    with client(server) as sdk:
        server.next(Meets(error_event=2))
        seen = []
        with pytest.raises(openai.APIError, match="in the stream"):
            seen += [
                c.choices[0].delta.content
                for c in sdk.chat.completions.create(model="g", messages=QUESTION, stream=True)
            ]
        server.next(Meets(error_event=3))
        events = list(sdk.responses.create(model="g", input="?", stream=True))
    assert [event.type for event in events][-1] == "error"
    assert server.paid() == []


def test_a_stream_that_is_cut_was_paid(serve: Serve) -> None:
    server = serve(replies("one two three"))
    server.next(Meets(cut=2), Meets(cut=0))
    with client(server) as sdk:
        with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)):
            list(sdk.chat.completions.create(model="g", messages=QUESTION, stream=True))
        with pytest.raises(openai.APIConnectionError):
            sdk.chat.completions.create(model="g", messages=QUESTION)
    assert len(server.paid()) == 2


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        (
            [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": "CALL"}],
            "did not have response messages",
        ),
        (
            [
                {"role": "user", "content": "x"},
                {"role": "assistant", "tool_calls": "CALL"},
                {"role": "user", "content": "y"},
            ],
            "call_1",
        ),
        ([{"role": "tool", "tool_call_id": "call_1", "content": "x"}], "must be a response"),
        ([], "empty array"),
    ],
)
def test_what_the_chat_endpoint_refuses(serve: Serve, messages: Any, why: str) -> None:
    call = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [{**m, "tool_calls": call} if m.get("tool_calls") else m for m in messages]
    strict, lenient = serve(), serve(strict=False)
    with client(strict) as sdk, pytest.raises(openai.BadRequestError, match=why):
        sdk.chat.completions.create(model="g", messages=messages)
    with client(lenient) as sdk:
        sdk.chat.completions.create(model="g", messages=messages)
    assert [line.what for line in strict.service.ledger.lines()] == ["refused"]
    assert [line.what for line in lenient.service.ledger.lines()] == ["refusable", "paid"]


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (["CALL"], "No tool output found for function call call_1"),
        (["OUT"], "No tool call found for function call output with call_id call_1"),
        (["CALL", "OUT", "CALL"], "Duplicate item found with id fc_1"),
        ([{"type": "reasoning", "id": "rs_1", "summary": []}], "without its required following item"),
    ],
)
def test_what_the_responses_endpoint_refuses(serve: Serve, items: list[Any], why: str) -> None:
    known = {
        "CALL": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
        "OUT": {"type": "function_call_output", "call_id": "call_1", "output": "x"},
    }
    sent: Any = [{"role": "user", "content": "x"}, *(known[i] if isinstance(i, str) else i for i in items)]
    with client(serve()) as sdk, pytest.raises(openai.BadRequestError, match=why):
        sdk.responses.create(model="g", input=sent)


def test_a_computer_call(serve: Serve) -> None:
    from surefoot.testing.models import ToolCall

    server = serve(
        lambda ask: Say(
            calls=(ToolCall(name="computer", arguments={"type": "click", "x": 1, "y": 2, "button": "left"}),)
        )
    )
    tool: Any = {"type": "computer_use_preview", "display_width": 640, "display_height": 480, "environment": "linux"}
    with client(server) as sdk:
        made = sdk.responses.create(model="computer-use-preview", input="go", tools=[tool])
    assert [item.type for item in made.output] == ["computer_call"]
    assert server.asks[0].tools == ("computer",)


def test_who_brings_no_key_is_refused(serve: Serve) -> None:
    server = serve(replies("hello"))
    answer = httpx2.post(f"{server.url}/v1/chat/completions", json={"model": "g", "messages": QUESTION})
    assert answer.status_code == 401
    assert server.paid() == []
