"""What becomes a result and what does not: retries, errors, bad ends of streams; and what the reader may see when."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from surefoot import Diverged, Surefoot, http, workflow
from surefoot.core.calls import is_call, is_try
from surefoot.testing.models import Meets, ModelServer, replies
from tests.http.sdks import ASK, anthropic_client, chat, chat_stream, messages_stream, openai_client, responses_stream
from tests.http.test_sdks import run_twice
from tests.runtime.support import Crash, restart

STREAMS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (openai_client, chat_stream),
    (openai_client, responses_stream),
    (anthropic_client, messages_stream),
]


def entries(db: Path) -> list[str]:
    """The slots on disk, seen from outside: calls as "call", failed attempts as "try"."""
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True)
    try:
        slots = [row[0] for row in connection.execute("SELECT slot FROM entries ORDER BY run, seq")]
    finally:
        connection.close()
    return ["call" if is_call(slot) else "try" if is_try(slot) else slot for slot in slots]


def caught(ask: Callable[[], Any]) -> Any:
    """What it gives, or the name of what it raises."""
    try:
        return ask()
    except (openai.OpenAIError, anthropic.AnthropicError, httpx2.TransportError) as error:
        return type(error).__name__


def wire(models: ModelServer) -> int:
    """Requests that reached the server."""
    return len(models.asks)


@pytest.mark.parametrize("ask", [chat, chat_stream])
def test_the_retries_of_an_sdk_fill_one_slot(db: Path, models: ModelServer, ask: Callable[..., Any]) -> None:
    models.next(Meets(error=429, retry_after=0.01), Meets(error=503, retry_after=0.01))
    first, again = run_twice(db, lambda: ask(openai_client(models.url, http.client(), max_retries=2)))
    assert first == again
    assert (wire(models), len(models.paid())) == (3, 1)
    assert entries(db) == ["try", "try", "call"]


def test_errors_at_the_frontier_are_asked_anew(db: Path, models: ModelServer) -> None:
    models.next(*[Meets(error=529, retry_after=0.01)] * 3)

    def body() -> Any:
        client = anthropic_client(models.url, http.client(), max_retries=2)
        return caught(lambda: client.messages.create(model="m", max_tokens=9, messages=ASK).content[0])

    first, again = run_twice(db, body)
    assert first == "OverloadedError" or first == "InternalServerError"
    assert again.text == "hello big world"
    assert wire(models) == 4


def test_a_fallback_stays_on_its_recorded_path(db: Path, models: ModelServer) -> None:
    """The first model fails for good, the second answers, the process dies: resumed, nothing goes to the first."""
    for _ in range(2):
        models.next(Meets(error=503, retry_after=0.01, model="primary"))

    def body() -> Any:
        client = openai_client(models.url, http.client(), max_retries=1)
        try:
            return client.chat.completions.create(model="primary", messages=ASK).model
        except openai.InternalServerError:
            return client.chat.completions.create(model="backup", messages=ASK).model

    first, again = run_twice(db, body)
    assert first == again == "backup"
    assert wire(models) == 3


@pytest.mark.parametrize("how", ["cut", "error_event"])
@pytest.mark.parametrize(("make", "ask"), STREAMS)
def test_a_stream_that_ends_badly_is_no_result(db: Path, models: ModelServer, make: Any, ask: Any, how: str) -> None:
    models.next(Meets(**{how: 3}))

    def body() -> Any:
        client = make(models.url, http.client(), max_retries=0)
        return caught(lambda: ask(client)), caught(lambda: ask(client))

    (bad, good), again = run_twice(db, body)
    assert good != bad and good == again[1]
    if ask is not responses_stream or how == "cut":
        assert isinstance(bad, str)
    # behind the frontier the failure is replayed, and nothing is sent
    assert again[0] == bad
    assert wire(models) == 2
    assert entries(db) == ["try", "call"]


@pytest.mark.parametrize(("make", "ask"), STREAMS)
def test_a_stream_that_its_reader_closed_is_no_result_and_is_closed_there_again(db: Path, make: Any, ask: Any) -> None:
    with ModelServer(replies("one two three four five six seven eight"), event_seconds=0.01) as models:

        def body() -> Any:
            client = make(models.url, http.client(), max_retries=0)
            match ask.__name__:
                case "chat_stream":
                    stream: Any = client.chat.completions.create(model="m", messages=ASK, stream=True)
                case "responses_stream":
                    stream = client.responses.create(model="m", input="hi", stream=True)
                case _:
                    stream = client.messages.create(model="m", max_tokens=9, messages=ASK, stream=True)
            first = next(iter(stream)).model_dump_json()
            stream.close()
            return first, chat(openai_client(models.url, http.client()))

        first, again = run_twice(db, body)
        assert first == again
        assert wire(models) == 2
        assert entries(db) == ["try", "call"]


async def test_a_cancelled_stream_leaves_its_slot_free(db: Path) -> None:
    got: list[str] = []
    with ModelServer(replies("one two three four five six seven eight"), event_seconds=0.05) as models:

        @workflow
        async def agent() -> None:
            client = openai.AsyncOpenAI(
                api_key="k", base_url=f"{models.url}/v1", http_client=http.async_client(), max_retries=0
            )
            begun = asyncio.Event()

            async def read() -> str:
                text = ""
                async for event in await client.chat.completions.create(model="m", messages=ASK, stream=True):
                    text += event.choices[0].delta.content or "" if event.choices else ""
                    begun.set()
                return text

            async with http.scope("agent"):
                task = asyncio.ensure_future(read())
                await begun.wait()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                got.append(await read())

        with Surefoot(db) as sf:
            await sf.run(agent, id="r")
        assert entries(db) == ["call"] and wire(models) == 2
    assert got == ["one two three four five six seven eight"]


def opened(models: ModelServer, ask: str) -> tuple[Any, Callable[[Any], bool]]:
    """A stream of that API, and what tells that an event says "finished"."""
    match ask:
        case "chat":
            client: Any = openai_client(models.url, http.client())
            stream = client.chat.completions.create(model="m", messages=ASK, stream=True)
            return stream, lambda event: bool(event.choices and event.choices[0].finish_reason)
        case "responses":
            client = openai_client(models.url, http.client())
            stream = client.responses.create(model="m", input="hi", stream=True)
            return stream, lambda event: event.type == "response.completed"
        case _:
            client = anthropic_client(models.url, http.client())
            stream = client.messages.create(model="m", max_tokens=9, messages=ASK, stream=True)
            return stream, lambda event: event.type in ("message_delta", "message_stop")


@pytest.mark.parametrize("ask", ["chat", "responses", "messages"])
def test_the_answer_is_on_disk_before_its_reader_learns_that_it_is_finished(
    db: Path, models: ModelServer, ask: str
) -> None:
    seen: list[tuple[bool, int]] = []

    def body() -> None:
        stream, is_last = opened(models, ask)
        for event in stream:
            seen.append((is_last(event), len(entries(db))))  # noqa: PERF401 - what was on disk when it came

    run_twice(db, body)
    live = seen[: len(seen) // 2]
    assert {recorded for last, recorded in live if last} == {1}
    assert {recorded for last, recorded in live[:-4] if not last} == {0}


def test_a_model_that_was_asked_something_else_is_not_asked(db: Path, models: ModelServer) -> None:
    questions = [["a", "b"], ["a", "x"]]

    def body() -> None:
        client = openai_client(models.url, http.client())
        for text in questions.pop(0):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])

    with pytest.raises(Diverged, match="x"):
        run_twice(db, body)
    assert wire(models) == 2


async def test_calls_in_flight_side_by_side_find_their_answers_in_any_order(db: Path) -> None:
    got: list[list[str]] = []
    with ModelServer(lambda ask: replies(f"answer {ask.number}")(ask), strict=False) as models:
        for order in (range(64), range(63, -1, -1)):
            restart()

            @workflow(name="agent")
            async def agent() -> None:
                client = openai.AsyncOpenAI(api_key="k", base_url=f"{models.url}/v1", http_client=http.async_client())

                async def ask(number: int) -> str:
                    with http.scope(f"node {number}"):
                        text = f"question {number // 16}"
                        answer = await client.responses.create(model="m", input=text)
                    return f"{number} {answer.output_text}"

                async with http.scope("crew"):
                    got.append(sorted(await asyncio.gather(*(ask(number) for number in order))))  # noqa: B023
                if len(got) == 1:
                    raise Crash

            with Surefoot(db) as sf:
                try:
                    await sf.run(agent, id="r")
                except Crash:
                    pass
        assert len(models.paid()) == 64
    answers = [sorted(line.split(" ", 1)[1] for line in one) for one in got]
    assert answers[0] == answers[1] and len(set(answers[0])) == 64


def test_sixty_four_threads_ask_at_once(db: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    with ModelServer(lambda ask: replies(f"answer {ask.number}")(ask), strict=False) as models:

        def body() -> list[str]:
            client = openai_client(models.url, http.client())

            def ask(number: int) -> str:
                messages: Any = [{"role": "user", "content": f"question {number}"}]
                answer = client.chat.completions.create(model="m", messages=messages)
                return f"{number} {answer.choices[0].message.content}"

            with http.scope("crew"), ThreadPoolExecutor(16) as pool:
                asked = [pool.submit(copy_context().run, ask, number) for number in range(64)]
                return [future.result() for future in asked]

        first, again = run_twice(db, body)
        assert first == again and len(models.paid()) == 64
