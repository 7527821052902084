"""A process with `install()` and clients as their SDKs make them: prints what they said, run twice."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from frameworks.lives import twice
from surefoot import http

http.install(outside="refuse")
assert not {"httpx", "httpx2", "requests"} & set(sys.modules), "install() imports nothing"

import httpx  # noqa: E402

from tests.http.sdks import (  # noqa: E402
    anthropic_async,
    anthropic_client,
    chat,
    chat_async,
    chat_stream,
    messages,
    messages_stream_async,
    openai_async,
    openai_client,
    responses_stream,
)


def main(db: str, url: str) -> None:
    def ask() -> list[Any]:
        return [
            chat(openai_client(url)),
            chat_stream(openai_client(url)),
            chat(openai_client(url, httpx.Client()), temperature=1),
            responses_stream(openai_client(url)),
            messages(anthropic_client(url)),
            asyncio.run(chat_async(openai_async(url))),
            asyncio.run(messages_stream_async(anthropic_async(url))),
        ]

    seen = twice(Path(db), ask)
    assert seen[0] == seen[1]
    http.install(outside="plain")
    assert chat(openai_client(url))
    print(len(seen[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
