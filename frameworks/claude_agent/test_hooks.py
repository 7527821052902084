"""The hooks alone, with the SDK's own types: what is recorded is handed on, and what is in doubt is denied."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher
from claude_agent_sdk import tool as sdk_tool

from surefoot import RunWaiting, Surefoot, UsageError, keyed, workflow
from surefoot.http import scope
from surefoot.integrations.claude_agent import Guard

RAN: list[str] = []
Told = list[dict[str, Any]]


def asked(event: str, name: str, arguments: dict[str, Any], id: str, **more: Any) -> Any:
    base = {"session_id": "s", "transcript_path": "", "cwd": "/", "hook_event_name": event}
    return {**base, "tool_name": name, "tool_input": arguments, "tool_use_id": id, **more}


async def fire(options: ClaudeAgentOptions, event: str, name: str, arguments: Any, id: str, **more: Any) -> Any:
    """What the program would be told by all hooks of this event."""
    told: dict[str, Any] = {}
    for matcher in (options.hooks or {})[event]:
        for hook in matcher.hooks:
            told |= await hook(asked(event, name, arguments, id, **more), id, {"signal": None})
    return told


def decision(told: dict[str, Any]) -> str:
    return told.get("hookSpecificOutput", {}).get("permissionDecision", "")


def live(folder: Path, body: Any) -> Any:
    """One life of a run whose agent is `body(guard, options)`."""

    @workflow(name="agent")
    async def agent() -> Any:
        with scope("agent"):
            guard = Guard(tools={"pay": keyed(3600)})
            return await body(guard, guard.options(ClaudeAgentOptions()))

    async def main() -> Any:
        async with Surefoot(folder / "agents.db") as sf:
            return await sf.run(agent, id="r")

    return asyncio.run(main())


def killed(folder: Path, body: Any) -> None:
    """A life in a process of its own, which is really killed."""
    pid = os.fork()
    if pid == 0:
        try:
            live(folder, body)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_shell_command_that_was_done_is_not_done_again_and_its_output_is_handed_on(tmp_path: Path) -> None:
    command, output = {"command": "make deploy"}, {"stdout": "deployed", "stderr": ""}

    async def first(guard: Guard, options: Any) -> None:
        assert await fire(options, "PreToolUse", "Bash", command, "id1") == {}
        assert await fire(options, "PostToolUse", "Bash", command, "id1", tool_response=output) == {}
        os.kill(os.getpid(), signal.SIGKILL)

    async def again(guard: Guard, options: Any) -> list[Any]:
        before = await fire(options, "PreToolUse", "Bash", command, "id1")
        after = await fire(options, "PostToolUse", "Bash", command, "id1", tool_response={"stdout": ""})
        return [before["hookSpecificOutput"]["updatedInput"], after["hookSpecificOutput"]["updatedToolOutput"]]

    killed(tmp_path, first)
    assert live(tmp_path, again) == [{"command": ":"}, output]


def test_a_command_whose_end_nobody_saw_is_denied_and_the_run_waits(tmp_path: Path) -> None:
    command = {"command": "make deploy"}

    async def first(guard: Guard, options: Any) -> None:
        assert await fire(options, "PreToolUse", "Bash", command, "id1") == {}
        os.kill(os.getpid(), signal.SIGKILL)

    seen: Told = []

    async def again(guard: Guard, options: Any) -> str:
        seen.append(await fire(options, "PreToolUse", "Bash", command, "id1"))
        return "it goes on all the same"

    killed(tmp_path, first)
    for _ in range(2):
        with pytest.raises(RunWaiting, match="in doubt"):
            live(tmp_path, again)
    assert [decision(told) for told in seen] == ["deny", "deny"]
    assert all(told["continue_"] is False and "do not retry" in str(told) for told in seen)


@pytest.mark.parametrize(("interrupted", "waits"), [(False, False), (True, True)])
def test_a_command_that_failed_has_an_outcome_and_an_interrupted_one_has_none(
    tmp_path: Path, interrupted: bool, waits: bool
) -> None:
    command = {"command": "false"}

    async def body(guard: Guard, options: Any) -> str:
        assert await fire(options, "PreToolUse", "Bash", command, "id1") == {}
        told = await fire(
            options, "PostToolUseFailure", "Bash", command, "id1", error="exit 1", is_interrupt=interrupted
        )
        return str(told)

    if waits:
        with pytest.raises(RunWaiting):
            live(tmp_path, body)
    else:
        assert live(tmp_path, body) == "{}"


def test_what_was_read_is_shown_again(tmp_path: Path) -> None:
    async def read(options: Any, content: str) -> Any:
        assert await fire(options, "PreToolUse", "Read", {"file": "a"}, "id1") == {}
        return await fire(options, "PostToolUse", "Read", {"file": "a"}, "id1", tool_response=content)

    async def first(guard: Guard, options: Any) -> None:
        assert await read(options, "one") == {}
        os.kill(os.getpid(), signal.SIGKILL)

    async def again(guard: Guard, options: Any) -> Any:
        return (await read(options, "two"))["hookSpecificOutput"]["updatedToolOutput"]

    killed(tmp_path, first)
    assert live(tmp_path, again) == "one"


def test_two_equal_calls_of_a_tool_of_ones_own_are_two(tmp_path: Path) -> None:
    @sdk_tool("pay", "pays", {"amount": int})
    async def pay(arguments: dict[str, Any]) -> dict[str, Any]:
        RAN.append("paid")
        return {"content": [{"type": "text", "text": f"paid {len(RAN)}"}]}

    async def body(guard: Guard, options: Any) -> list[str]:
        tool = guard.tool(pay)
        said: list[str] = []
        for number in (1, 2):
            assert await fire(options, "PreToolUse", "mcp__bank__pay", {"amount": 5}, f"id{number}") == {}
            said.append((await tool.handler({"amount": 5}))["content"][0]["text"])
        return said

    assert live(tmp_path, body) == ["paid 1", "paid 2"] == live(tmp_path, body)
    assert RAN == ["paid", "paid"]


def test_hooks_that_are_there_stay_and_a_guard_belongs_to_a_run(tmp_path: Path) -> None:
    mine = HookMatcher(hooks=[])

    async def body(guard: Guard, options: Any) -> int:
        return (guard.options(ClaudeAgentOptions(hooks={"PreToolUse": [mine]})).hooks or {})["PreToolUse"].index(mine)

    assert live(tmp_path, body) == 1
    with pytest.raises(UsageError, match="belongs to a run"):
        Guard()
