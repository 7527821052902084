"""A loop over Gemini, as the SDK documents it: by hand, streamed and async, or with its automatic function calling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google import genai
from google.genai import types

from frameworks.kit import PROMPT, Job
from frameworks.ours import run_once, run_once_async, shop_tool
from surefoot.integrations.tool import tool_call_id

SHOP = types.FunctionDeclaration(
    name="shop",
    description="Do one irreversible checkout operation.",
    parameters=types.Schema(
        type=types.Type.OBJECT, properties={"op": types.Schema(type=types.Type.STRING)}, required=["op"]
    ),
)
CONFIG = types.GenerateContentConfig(
    tools=[types.Tool(function_declarations=[SHOP])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)
MODEL = "gemini-scripted"
Call = Callable[[types.FunctionCall], str]


def client_of(job: Job) -> genai.Client:
    return genai.Client(api_key="any", http_options=types.HttpOptions(base_url=job.models))


def asked_for(contents: list[types.Content]) -> list[types.FunctionCall]:
    return [part.function_call for part in contents[-1].parts or [] if part.function_call is not None]


def answered(asked: types.FunctionCall, result: str) -> types.Part:
    response = types.FunctionResponse(id=asked.id, name=asked.name, response={"result": result})
    return types.Part(function_response=response)


def loop(client: genai.Client, call: Call) -> str:
    contents = [types.Content(role="user", parts=[types.Part(text=PROMPT)])]
    while True:
        answer = client.models.generate_content(model=MODEL, contents=contents, config=CONFIG)
        assert answer.candidates is not None and answer.candidates[0].content is not None
        contents.append(answer.candidates[0].content)
        asked = asked_for(contents)
        if not asked:
            return answer.text or ""
        contents.append(types.Content(role="user", parts=[answered(one, call(one)) for one in asked]))


async def loop_streamed(client: genai.Client, call: Call) -> str:
    contents = [types.Content(role="user", parts=[types.Part(text=PROMPT)])]
    while True:
        parts: list[types.Part] = []
        async for event in await client.aio.models.generate_content_stream(
            model=MODEL, contents=contents, config=CONFIG
        ):
            for candidate in event.candidates or []:
                parts += (candidate.content.parts or []) if candidate.content is not None else []
        contents.append(types.Content(role="model", parts=parts))
        asked = asked_for(contents)
        if not asked:
            return "".join(part.text or "" for part in parts)
        contents.append(types.Content(role="user", parts=[answered(one, call(one)) for one in asked]))


def called(shop: Callable[..., str]) -> Call:
    def call(asked: types.FunctionCall) -> str:
        with tool_call_id(asked.id or ""):
            return shop(**(asked.args or {}))

    return call


def automatic(job: Job, shop: Callable[..., str]) -> str:
    config = types.GenerateContentConfig(tools=[shop])
    client = client_of(job)  # it closes itself when nobody holds it
    return client.models.generate_content(model=MODEL, contents=PROMPT, config=config).text or ""


def run(job: Job) -> str:
    if job.arm == "as published":
        return loop(client_of(job), lambda asked: job.press(**(asked.args or {})))
    shop: Any = shop_tool(job, name="shop")
    if job.options.get("stream"):
        return run_once_async(job, lambda prompt: loop_streamed(client_of(job), called(shop)))
    if job.options.get("automatic"):
        return run_once(job, lambda prompt: automatic(job, shop))
    return run_once(job, lambda prompt: loop(client_of(job), called(shop)))
