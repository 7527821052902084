"""Agents that start a tool before the answer has ended: what lets them is given out only when the answer is on disk."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from surefoot import http
from surefoot.testing.models import Meets, ModelServer, Say, ToolCall, replies
from tests.http.test_journal import entries
from tests.http.test_sdks import run_twice

CLIENT, OUTSIDE = http.client(verify=False), httpx2.Client(verify=False)
ARGUMENTS = {"order": {"id": 81}, "note": "} at once"}
PAY = ToolCall(name="pay", arguments=ARGUMENTS)
ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": "m", "stream": True, "messages": [{"role": "user", "content": "go"}]}),
    "responses": ("/v1/responses", {"model": "m", "stream": True, "input": "go"}),
    "messages": (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "go"}]},
    ),
    "gemini": ("/v1beta/models/m:streamGenerateContent?alt=sse", {"contents": [{"parts": [{"text": "go"}]}]}),
}


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer(replies(Say(text="I will pay now", calls=(PAY, PAY))), strict=False) as server:
        yield server


class Reader:
    """An agent that takes a tool call as soon as it can be read, in whichever of these four ways it comes."""

    def __init__(self) -> None:
        self.arguments: dict[Any, str] = {}
        self.calls: list[Any] = []
        self.errors: list[Any] = []

    def sees(self, event: dict[str, Any]) -> None:
        self.errors += [event] if event.get("error") or event.get("type") == "error" else []
        for choice in event.get("choices") or []:
            for call in choice["delta"].get("tool_calls") or []:
                self.add(call["index"], call["function"]["arguments"])
                self.take_if_parsed(call["index"])
        for candidate in event.get("candidates") or []:
            self.calls += [p["functionCall"]["args"] for p in candidate["content"]["parts"] if "functionCall" in p]
        kind, index = event.get("type"), event.get("output_index", event.get("index"))
        if kind == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            self.add(index, event["delta"]["partial_json"])
        elif kind == "response.function_call_arguments.delta":
            self.add(index, event["delta"])
        elif kind in ("content_block_stop", "response.function_call_arguments.done", "response.output_item.done"):
            self.take_if_parsed(index)

    def add(self, index: Any, text: str) -> None:
        self.arguments[index] = self.arguments.get(index, "") + text

    def take_if_parsed(self, index: Any) -> None:
        try:
            self.calls.append(json.loads(self.arguments.get(index, "")))
        except ValueError:
            return
        del self.arguments[index]


def read(models: ModelServer, api: str, each: Callable[[Reader], None]) -> Reader:
    """Ask, and show the reader after each event."""
    path, body = ASKS[api]
    reader, rest = Reader(), ""
    with CLIENT.stream("POST", models.url + path, json=body) as answer:
        for text in answer.iter_text():
            *whole, rest = (rest + text.replace("\r\n", "\n")).split("\n\n")
            for event in whole:
                data = "".join(line[5:] for line in event.splitlines() if line.startswith("data:")).strip()
                if data and data != "[DONE]":
                    reader.sees(json.loads(data))
                    each(reader)
    return reader


@pytest.mark.parametrize("api", ASKS)
def test_no_tool_call_is_handed_over_before_its_answer_is_on_disk(db: Path, models: ModelServer, api: str) -> None:
    seen: list[tuple[int, int]] = []

    def body() -> list[Any]:
        return read(models, api, lambda reader: seen.append((len(reader.calls), len(entries(db))))).calls

    first, again = run_twice(db, body)
    assert first == again == [ARGUMENTS, ARGUMENTS]
    live = seen[: len(seen) // 2]
    assert {recorded for calls, recorded in live if calls} == {1}
    assert live[0] == (0, 0)  # and yet the text streams


@pytest.mark.parametrize("api", ASKS)
def test_the_tool_calls_of_an_answer_that_was_cut_are_never_handed_over(
    db: Path, models: ModelServer, api: str
) -> None:
    cuts = range(1, events_of(models, api))
    models.next(*[Meets(cut=count) for count in cuts])

    def body() -> list[Any]:
        taken: list[Any] = []
        for _ in cuts:
            with pytest.raises(httpx2.TransportError):
                read(models, api, lambda reader: taken.extend(reader.calls))
        assert taken == []
        return read(models, api, lambda _: None).calls

    first, _ = run_twice(db, body)
    assert first == [ARGUMENTS, ARGUMENTS]
    assert entries(db) == ["try"] * len(cuts) + ["call"]


@pytest.mark.parametrize("api", ASKS)
def test_an_answer_that_fails_after_a_tool_call_tells_its_error_and_not_the_call(
    db: Path, models: ModelServer, api: str
) -> None:
    models.next(Meets(error_event=events_of(models, api) - 1))

    def body() -> list[Any]:
        failed: list[Any] = []
        assert read(models, api, lambda reader: failed.extend(reader.errors)).calls == []
        assert failed
        return read(models, api, lambda _: None).calls

    assert run_twice(db, body)[0] == [ARGUMENTS, ARGUMENTS]
    assert entries(db) == ["try", "call"]


def events_of(models: ModelServer, api: str) -> int:
    """How many events the answer has on the wire."""
    path, body = ASKS[api]
    return OUTSIDE.post(models.url + path, json=body).text.replace("\r\n", "\n").count("\n\n")
