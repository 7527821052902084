"""Where Claude's program is answered: at loopback, by what the run recorded, else by the address that is configured."""

import json
import urllib.request
from pathlib import Path

import pytest

import surefoot.http
from surefoot import Surefoot, workflow
from surefoot.integrations.claude_models import recorded_models
from surefoot.testing.models import ModelServer, replies

QUESTION = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}


def asked(url: str) -> str:
    headers = {"content-type": "application/json", "x-api-key": "any", "anthropic-version": "2023-06-01"}
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(QUESTION).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["content"][0]["text"]


def in_a_run(db: Path, **upstream: str) -> str:
    @workflow(name="agent")
    def agent() -> str:
        with surefoot.http.scope("agent"), recorded_models(**upstream) as url:
            return asked(url)

    with Surefoot(db) as sf:
        return sf.run(agent, id="r")


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_gateway_that_the_environment_names_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slash: str
) -> None:
    with ModelServer(replies("from the gateway")) as gateway:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", gateway.url + slash)
        assert in_a_run(tmp_path / "agents.db") == "from the gateway"
        assert len(gateway.paid()) == 1


def test_what_is_said_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(replies("another")) as other, ModelServer(replies("as said")) as said:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", other.url)
        assert in_a_run(tmp_path / "agents.db", upstream=said.url) == "as said"
        assert other.paid() == []
