"""Each SDK pays once, and on replay sees what it saw: every event, every id, all usage, byte for byte."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from surefoot import Surefoot, http, workflow
from surefoot.testing.models import ModelServer, replies
from tests.http.sdks import ASK, ASYNC, SYNC, Call
from tests.runtime.support import Crash, restart

LEGACY: list[tuple[Any, Call]] = [(httpx, call) for call in SYNC[:4]]  # anthropic takes httpx2 alone


def named(value: Any) -> str:
    return value[1].__name__ if isinstance(value, tuple) else getattr(value, "__name__", str(value))


def run_twice(db: Path, body: Callable[[], Any]) -> list[Any]:
    """What `body` gives as it happens, and again after a crash right behind it."""
    seen: list[Any] = []
    for crashes in (True, False):
        restart()
        with Surefoot(db) as sf:
            try:
                sf.run(workflow(name="agent")(_of(body, seen, crashes)), id="r")
            except Crash:
                pass
    return seen


def _of(body: Callable[[], Any], seen: list[Any], crashes: bool) -> Callable[[], None]:
    def agent() -> None:
        seen.append(body())
        if crashes:
            raise Crash

    return agent


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("library", "call"), [*((httpx2, call) for call in SYNC), *LEGACY], ids=named)
def test_a_sync_sdk_pays_once_and_sees_the_same_again(db: Path, library: Any, call: Call, zipped: bool) -> None:
    make, ask = call
    with ModelServer(replies("hello big world"), compress=zipped) as models:

        def body() -> Any:
            with http.client(library=library, outside="refuse") as http_client:
                return ask(make(models.url, http_client))

        first, again = run_twice(db, body)
        assert first == again and "hello" in "".join(first)
        assert len(models.paid()) == 1 == len(models.asks)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("call", ASYNC, ids=named)
async def test_an_async_sdk_pays_once_and_sees_the_same_again(db: Path, call: Call, zipped: bool) -> None:
    make, ask = call
    seen: list[Any] = []
    with ModelServer(replies("hello big world"), compress=zipped) as models:
        for crashes in (True, False):
            restart()

            @workflow(name="agent")
            async def agent() -> None:
                async with http.async_client(outside="refuse") as http_client:
                    seen.append(await ask(make(models.url, http_client)))
                if crashes:  # noqa: B023 - the run ends within the turn of the loop
                    raise Crash

            with Surefoot(db) as sf:
                try:
                    await sf.run(agent, id="r")
                except Crash:
                    pass
        assert seen[0] == seen[1] and "hello" in "".join(seen[0])
        assert len(models.paid()) == 1 == len(models.asks)


def test_the_journal_leaves_the_body_of_an_answer_as_it_came(db: Path) -> None:
    with ModelServer(replies("hello big world"), compress=True) as models:
        url, sent = f"{models.url}/v1/chat/completions", {"model": "m", "messages": ASK, "stream": True}
        plain = httpx2.post(url, json=sent, headers={"Authorization": "Bearer k"}).content

        def body() -> bytes:
            return http.client().post(url, json=sent, headers={"Authorization": "Bearer k"}).content

        first, again = run_twice(db, body)
    ids = re.compile(rb'"(id|created)":"?[^,]*')
    assert first == again
    assert ids.sub(b"", first) == ids.sub(b"", plain)
