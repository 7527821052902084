"""google-genai behind `surefoot proxy`: an agent without a line of ours is killed, started again, and sees the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from surefoot.testing.models import Ask, ModelServer, Say, ToolCall

PROXY = "import sys; from surefoot.cli import main; sys.exit(main())"
AGENT = """
import asyncio, os, signal, sys
from google import genai
from google.genai import types

config = types.GenerateContentConfig(
    tools=[types.Tool(function_declarations=[types.FunctionDeclaration(name="charge")])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)
way, flag = sys.argv[1:]
# the SDK finds the proxy by itself, or is told
told = {"http_options": types.HttpOptions(base_url=os.environ["GOOGLE_GEMINI_BASE_URL"])} if "async" in way else {}
seen = {"exclude": {"sdk_http_response"}}  # the connection's own headers: its date, and that it is a replay
client = genai.Client(api_key="canary-secret", **told)

async def ask_async(asked):
    if way == "whole async":
        return [(await client.aio.models.generate_content(**asked)).model_dump_json(**seen)]
    return [event.model_dump_json(**seen) async for event in await client.aio.models.generate_content_stream(**asked)]

async def main():
    for number in range(3):
        asked = {"model": "g", "contents": f"question {number}", "config": config}
        if "async" in way:
            answer = await ask_async(asked)
        elif way == "whole":
            answer = [client.models.generate_content(**asked).model_dump_json(**seen)]
        else:
            answer = [event.model_dump_json(**seen) for event in client.models.generate_content_stream(**asked)]
        print(number, answer, flush=True)
        if number == 1 and not os.path.exists(flag):
            open(flag, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def answer(ask: Ask) -> Say:
    return Say(text=f"answer {ask.number}", calls=(ToolCall(name="charge"), ToolCall(name="charge")))


@pytest.mark.feature("proxy")
@pytest.mark.parametrize("way", ["whole", "streamed", "whole async", "streamed async"])
def test_paid_once_and_the_same_again_for_an_agent_that_is_killed(tmp_path: Path, way: str) -> None:
    db = tmp_path / "proxy.db"
    with ModelServer(answer, record=tmp_path / "paid.jsonl") as models:
        # the proxy stands in an environment of its own, as the agent does in this one
        proxy = [os.environ["FRAMEWORKS_PYTHON"], "-c", PROXY, "proxy", "exec", "--db", str(db), "--run", "r", "--"]
        ended = subprocess.run(
            [*proxy, sys.executable, "-c", AGENT, way, str(tmp_path / "flag")],
            env={**os.environ, "GOOGLE_GEMINI_BASE_URL": models.url},
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert ended.returncode == 0, ended.stderr
        assert "ended with signal 9; started again" in ended.stderr
        lines = ended.stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["0", "1", "0", "1", "2"]
        assert lines[:2] == lines[2:4], "an answer was another one"
        assert all(line.count('"call_') >= 2 and "total_token_count" in line for line in lines)
        assert len(models.paid()) == 3
    assert b"canary-secret" not in b"".join(file.read_bytes() for file in tmp_path.glob("proxy.db*") if file.is_file())
