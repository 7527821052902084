"""Gemini's two endpoints, by their documented shapes; the google-genai package itself meets them in frameworks/."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from surefoot.testing.models import Meets, ModelServer, replies
from tests.models.conftest import Serve

ASK: Any = {"contents": [{"role": "user", "parts": [{"text": "weather?"}]}]}


def post(server: ModelServer, verb: str, body: Any) -> httpx2.Response:
    url = f"{server.url}/v1beta/models/gemini-x:{verb}"
    return httpx2.post(url, json=body, headers={"x-goog-api-key": "any"}, timeout=30)


def test_a_conversation_with_two_parallel_tools_that_have_no_ids(serve: Serve) -> None:
    server = serve()
    first = post(server, "generateContent", ASK).json()
    content = first["candidates"][0]["content"]
    calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
    assert calls == [{"name": "weather", "args": {"city": city}} for city in ("Paris", "Rome")]
    assert first["usageMetadata"] == {
        "promptTokenCount": 100,
        "candidatesTokenCount": 18,
        "cachedContentTokenCount": 64,
        "thoughtsTokenCount": 12,
        "totalTokenCount": 130,
    }
    told = [{"functionResponse": {"name": "weather", "response": {"result": c["args"]["city"]}}} for c in calls]
    turns = {"contents": [*ASK["contents"], content, {"role": "user", "parts": told}]}
    last = post(server, "generateContent", turns).json()["candidates"][0]
    assert "Paris" in last["content"]["parts"][0]["text"]
    assert last["finishReason"] == "STOP"
    assert [ask.model for ask in server.asks] == ["gemini-x"] * 2
    short = {"contents": [*ASK["contents"], content, {"role": "user", "parts": told[:1]}]}
    refused = post(server, "generateContent", short)
    assert (refused.status_code, refused.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_a_stream_ends_with_its_finish_reason(serve: Serve, compress: bool) -> None:
    server = serve(replies("one two three"), compress=compress)
    sse = post(server, "streamGenerateContent?alt=sse", ASK)
    chunks = [json.loads(line.removeprefix("data: ")) for line in sse.text.splitlines() if line]
    listed = post(server, "streamGenerateContent", ASK).json()
    for answer in (chunks, listed):
        assert "".join(a["candidates"][0]["content"]["parts"][0]["text"] for a in answer) == "one two three"
        assert ["finishReason" in a["candidates"][0] for a in answer] == [False, False, False, True]
    assert len(server.paid()) == 2


def test_errors_have_googles_shape(serve: Serve) -> None:
    server = serve()
    server.next(Meets(error=429))
    answer = post(server, "generateContent", ASK)
    assert (answer.status_code, answer.json()["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
