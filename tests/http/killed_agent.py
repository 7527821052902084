"""An agent of two model calls that dies where it is told to; forked, so that its SDKs are imported once."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import openai

from surefoot import Surefoot, http, workflow
from surefoot.core.calls import is_call
from surefoot.core.writes import Answer, Append, Write
from tests.http.sdks import anthropic_async, openai_client

Say = Callable[[str], None]


def arm(sf: Surefoot, number: int, when: str) -> None:
    """Die by SIGKILL before or after the commit of the `number`-th answer; renewals of the lease do not count."""
    transact, counted = sf.store.transact, [0]

    def armed(writes: Sequence[Write], *, again: bool = False) -> list[Answer]:
        counted[0] += sum(isinstance(write, Append) and is_call(write.draft.slot) for write in writes)
        if counted[0] == number and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answers = transact(writes, again=again)
        if counted[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return answers

    sf.store.transact = armed  # type: ignore[method-assign]


class Caller:
    """Asks in one of three ways, and dies at the event that it is told."""

    def __init__(self, url: str, way: str, dies: str) -> None:
        self.url, self.way, self.dies = url, way, dies

    def see(self, number: int, event: int, last: bool) -> None:
        if number == 2 and ((self.dies == "mid-stream" and event == 1) or (self.dies == "end seen" and last)):
            os.kill(os.getpid(), signal.SIGKILL)

    def ask(self, number: int) -> str:
        messages: Any = [{"role": "user", "content": f"question {number}"}]
        client = openai_client(self.url, http.client(outside="refuse"), max_retries=0)
        if self.way == "whole":
            answer = client.chat.completions.create(model="m", messages=messages)
            return f"{answer.id} {answer.choices[0].message.content}"
        text, seen = "", 0
        for event in client.chat.completions.create(model="m", messages=messages, stream=True):
            last = bool(event.choices and event.choices[0].finish_reason)
            self.see(number, seen, last)
            text, seen = text + (event.choices[0].delta.content or "" if event.choices else ""), seen + 1
        return f"{event.id} {text}"

    async def ask_async(self, number: int) -> str:
        messages: Any = [{"role": "user", "content": f"question {number}"}]
        client = anthropic_async(self.url, http.async_client(outside="refuse"), max_retries=0)
        async with client.messages.stream(model="m", max_tokens=9, messages=messages) as stream:
            seen = 0
            async for event in stream:
                self.see(number, seen, event.type in ("message_delta", "message_stop"))
                seen += 1
            answer = await stream.get_final_message()
        return f"{answer.id} {answer.content[0].text}"  # type: ignore[union-attr]


def run(say: Say, db: str, url: str, way: str, dies: str, commit: int, when: str) -> None:
    """One life: says each answer as it has it."""
    os.setpgid(0, 0)
    caller = Caller(url, way, dies)

    def told(number: int, answer: str) -> str:
        say(f"{number} {answer}")
        if dies == "returned" and number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    @workflow
    def agent() -> list[str]:
        return [told(number, caller.ask(number)) for number in (1, 2)]

    @workflow(name="agent")
    async def agent_async() -> list[str]:
        return [told(number, await caller.ask_async(number)) for number in (1, 2)]

    sf = Surefoot(db)
    if commit:
        arm(sf, commit, when)
    if way == "async stream":
        asyncio.run(sf.run(agent_async, id="r"))
    else:
        sf.run(agent, id="r")
    say("finished")


__all__ = ["anthropic", "openai", "run"]
