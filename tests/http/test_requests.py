"""What tells one call from another, what is kept of it and what it cost; and what is told of traffic beside it."""

import json
import subprocess
import sys
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import requests

from surefoot import Budget, BudgetExceeded, Surefoot, UsageError, http, step, workflow
from surefoot.core.calls import Usage, unpack
from surefoot.http import blind, settings
from surefoot.http.conversation import request_body
from surefoot.http.gemini import CallIds
from surefoot.http.request import Asked, asked_of
from surefoot.http.settings import settings_of
from surefoot.http.tokens import Price, Tally
from surefoot.testing.models import ModelServer, Say, ToolCall, replies
from surefoot.testing.models import Usage as Reported
from tests.http.sdks import ASK, anthropic_client, openai_client
from tests.http.test_sdks import run_twice

CHAT = "https://api.openai.com/v1/chat/completions"


def asked(url: str, body: Any, headers: dict[str, str] | None = None, **options: Any) -> Asked | None:
    """What this request asks, as a client would send it."""
    request = httpx2.Request("POST", url, headers=headers or {}, **({"json": body} if body is not None else options))
    endpoint = options.get("is_endpoint", lambda url: False)
    content = request.read()
    parts = (str(request.url), request.url.host, request.url.path, request.url.query.decode())
    named = {name.lower(): value for name, value in request.headers.items()}
    return asked_of("POST", *parts, named, content, endpoint)


def fingerprint(body: Any, headers: dict[str, str] | None = None, url: str = CHAT, **options: Any) -> bytes:
    found = asked(url, body, headers, **options)
    assert found is not None
    return found.fingerprint


BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5}


def test_what_names_the_caller_is_no_part_of_the_question() -> None:
    plain = fingerprint(BODY)
    assert fingerprint(dict(reversed(BODY.items()))) == plain
    for name in ("metadata", "user", "safety_identifier", "prompt_cache_key", "service_tier"):
        assert fingerprint({**BODY, name: "x"}) == plain
    headers = {"Authorization": "Bearer x", "X-Stainless-Retry-Count": "2", "Idempotency-Key": "1", "User-Agent": "x"}
    assert fingerprint(BODY, headers) == plain
    assert fingerprint(BODY, url=f"{CHAT}?api-key=1") == plain


MESSAGES = "https://api.anthropic.com/v1/messages"
PROMPT = {"type": "text", "text": "Do the checkout."}


def billed(by: str, *, day: str = "2026-11-30", said: str = "", role: str = "system") -> dict[str, Any]:
    """What Claude's program sends."""
    bill = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.71; cch={by};"}
    today = {"type": "text", "text": f"<system-reminder>\nToday's date is {day}.\n</system-reminder>"}
    messages = [{"role": "user", "content": said or "go"}, {"role": role, "content": [today]}]
    month = "December 2026" if day > "2026-12" else "November 2026"
    search = {"name": "WebSearch", "description": f"Searches. The current month is {month}. You MUST use this year"}
    return {"model": "m", "max_tokens": 9, "system": [bill, PROMPT], "messages": messages, "tools": [search]}


def test_what_claudes_program_says_of_its_process_and_its_day_is_no_part_of_the_question() -> None:
    for role in ("user", "system"):
        days = [billed(by, day=day, role=role) for by in ("929f9", "2be32") for day in ("2026-11-30", "2026-12-01")]
        assert len({fingerprint(body, url=MESSAGES) for body in days}) == 1
    others = [
        billed("929f9"),
        {**billed("929f9"), "system": [PROMPT]},
        {**billed("929f9"), "system": billed("929f9")["system"] * 2},
        billed("929f9", said="go on"),
        billed("929f9", role="assistant"),
        billed("929f9", role="assistant", day="2026-12-01"),
    ]
    assert len({fingerprint(body, url=MESSAGES) for body in others}) == len(others)


def test_another_program_that_names_the_day_asks_another_question_each_day() -> None:
    days = [{**billed("x", day=f"2026-12-0{day}"), "system": [PROMPT]} for day in (1, 2)]
    assert len({fingerprint(body, url=MESSAGES) for body in days}) == 2


def test_what_changes_the_answer_is_part_of_the_question() -> None:
    kinds = [
        fingerprint(BODY),
        fingerprint({**BODY, "temperature": 1}),
        fingerprint({**BODY, "stream": True}),
        fingerprint(BODY, {"OpenAI-Beta": "x"}),
        fingerprint(BODY, {"Anthropic-Version": "x"}),
        fingerprint(BODY, url=f"{CHAT}?api-version=2"),
        fingerprint(BODY, url=CHAT.replace("api.openai.com", "127.0.0.1")),
    ]
    assert len(set(kinds)) == len(kinds)


def test_a_multipart_body_is_its_parts_whatever_its_boundary() -> None:
    url = "https://api.openai.com/v1/audio/transcriptions"

    def ask(sound: bytes) -> bytes:
        return fingerprint(None, url=url, data={"model": "whisper"}, files={"file": ("a.wav", sound, "audio/wav")})

    assert ask(b"\x00one") == ask(b"\x00one")
    assert ask(b"\x00one") != ask(b"\x00two")


@pytest.mark.parametrize(
    ("url", "body", "api"),
    [
        (CHAT, {}, "openai.chat"),
        ("http://127.0.0.1:11434/v1/chat/completions", BODY, "openai.chat"),
        ("https://x.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", {}, "openai.chat"),
        ("http://localhost/v1/responses", {"model": "m", "input": "x"}, "openai.responses"),
        ("http://localhost/v1/messages", {"model": "m", "messages": [], "max_tokens": 1}, "anthropic.messages"),
        ("https://api.anthropic.com/v1/messages", {}, "anthropic.messages"),
        ("http://localhost/v1beta/models/g:generateContent", {}, "gemini.generate"),
        ("http://localhost/v1beta/models/g:streamGenerateContent?alt=sse", {}, "gemini.generate"),
        ("https://eu-aiplatform.googleapis.com/v1/x/models/claude:rawPredict", {}, "anthropic.vertex"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/model/x/converse", {}, "bedrock"),
        ("https://graph.microsoft.com/v1.0/chats/1/messages", {"body": {"content": "hi"}}, ""),
        ("https://slack.example/api/responses", {"text": "x"}, ""),
        ("https://bucket.s3.amazonaws.com/v1/chat", {"model": "m"}, ""),
        ("https://api.openai.com/v1/files", {}, ""),
    ],
)
def test_models_are_found_by_path_host_and_body(url: str, body: Any, api: str) -> None:
    found = asked(url, body)
    assert (found.api if found is not None else "") == api


def test_endpoints_of_ones_own_are_named() -> None:
    named = settings_of(endpoints=["http://10.0.0.1/llm/"], is_model_call=lambda url: url.endswith("/ask"))
    for url in ("http://10.0.0.1/llm/generate", "http://other/ask"):
        assert asked(url, {"q": 1}, is_endpoint=named.is_endpoint) is not None
    assert asked("http://other/tell", {"q": 1}, is_endpoint=named.is_endpoint) is None
    with pytest.raises(UsageError, match="base URLs"):
        settings_of(endpoints=["10.0.0.1"])


def test_ids_of_function_calls_come_from_the_call_and_stay() -> None:
    parts = [{"functionCall": {"name": "f", "args": {}}}, {"functionCall": {"name": "f"}}]
    body = json.dumps({"candidates": [{"content": {"parts": parts}}]}).encode()
    one, again, other = CallIds(b"a").named(body), CallIds(b"a").named(body), CallIds(b"b").named(body)
    assert one == again != other
    ids = [part["functionCall"]["id"] for part in json.loads(one)["candidates"][0]["content"]["parts"]]
    assert len(set(ids)) == 2 and all(id.startswith("call_") for id in ids)
    assert CallIds(b"c").named(one) == one


@pytest.mark.parametrize("verb", ["generateContent", "streamGenerateContent?alt=sse"])
def test_gemini_has_the_same_ids_on_replay(db: Path, verb: str) -> None:
    say = Say(calls=(ToolCall(name="charge", arguments={"n": 1}), ToolCall(name="charge", arguments={"n": 1})))
    with ModelServer(replies(say), strict=False) as models:

        def body() -> str:
            tools = [{"functionDeclarations": [{"name": "charge"}]}]
            contents = [{"role": "user", "parts": [{"text": "hi"}]}]
            answer = http.client(library=httpx).post(
                f"{models.url}/v1beta/models/gemini:{verb}",
                json={"contents": contents, "tools": tools},
                headers={"x-goog-api-key": "k"},
            )
            assert answer.status_code == 200
            return answer.text

        first, again = run_twice(db, body)
        assert first == again and first.count('"id"') == 2
        assert len(models.paid()) == 1


REPORTS = [
    (
        {"usage": {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3},
                   "completion_tokens_details": {"reasoning_tokens": 2}}},
        Usage(input_tokens=9, output_tokens=5, cached_tokens=3, reasoning_tokens=2),
    ),
    (
        {"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 5,
         "input_tokens_details": {"cached_tokens": 3}, "output_tokens_details": {"reasoning_tokens": 2}}}},
        Usage(input_tokens=9, output_tokens=5, cached_tokens=3, reasoning_tokens=2),
    ),
    (
        {"usage": {"input_tokens": 4, "output_tokens": 5, "cache_read_input_tokens": 3,
                   "cache_creation_input_tokens": 2}},
        Usage(input_tokens=9, output_tokens=5, cached_tokens=3, written_tokens=2),
    ),
    (
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "thoughtsTokenCount": 2,
                           "cachedContentTokenCount": 3, "totalTokenCount": 14}},
        Usage(input_tokens=9, output_tokens=5, cached_tokens=3, reasoning_tokens=2),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reported", "usage"), REPORTS)
def test_tokens_are_read_as_each_api_reports_them(reported: Any, usage: Usage) -> None:
    tally = Tally()
    tally.see(reported)
    assert tally.usage() == usage


def test_a_price_is_the_users_and_exact() -> None:
    price = Price(input="1.25", cached="0.125", output=10)
    assert price.of(Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)) == Decimal("1.80")
    prices = {"gpt-5": price, "gpt-5-mini": Price(input=1, output=1)}
    table = settings_of(prices=prices)
    assert table.money("gpt-5-2026-01-01", Usage(output_tokens=100_000)) == Decimal(1)
    assert table.money("gpt-5-mini-2026", Usage(output_tokens=100_000)) == Decimal("0.1")
    assert table.money("gpt-51", Usage(output_tokens=100_000)) is None
    with pytest.raises(UsageError, match="float"):
        Price(input=1.25, output=1)  # type: ignore[arg-type]


def test_calls_count_against_a_budget_of_money(db: Path) -> None:
    say = Say(text="ok", usage=Reported(input=100, output=50))
    with ModelServer(replies(say), strict=False) as models, Surefoot(db) as sf:

        @workflow(budget=Budget(money=Decimal("0.001")))
        def agent() -> None:
            client = openai_client(models.url, http.client(prices={"m": Price(input=2, output=8)}))
            for number in range(9):
                content: Any = [{"role": "user", "content": f"q{number}"}]
                client.chat.completions.create(model="m", messages=content)

        with pytest.raises(BudgetExceeded, match="money"):
            sf.run(agent, id="r")
        assert len(models.paid()) == 2  # 0.0006 each


def test_the_timeline_shows_tokens_money_and_failures(db: Path) -> None:
    from surefoot.testing.models import Meets

    say = Say(text="ok", usage=Reported(input=100, output=50, cached=40, reasoning=20))
    with ModelServer(replies(say), strict=False) as models, Surefoot(db) as sf:
        models.next(Meets(error=503, retry_after=0.01))

        @workflow
        def agent() -> None:
            prices = {"m": Price(input=2, output=8)}
            openai_client(models.url, http.client(prices=prices)).chat.completions.create(model="m", messages=ASK)

        sf.run(agent, id="r")
    command = [str(Path(sys.executable).with_name("surefoot")), "show", "r", "--db", str(db)]
    shown = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=60).stdout)
    assert (shown["tokens"], shown["calls"], Decimal(shown["money"])) == (150, 1, Decimal("0.0006"))
    assert shown["usage"] == {"input": 100, "output": 50, "cached": 40, "reasoning": 20, "written": 0}
    kinds = {moment["kind"]: moment for moment in shown["timeline"]}
    assert kinds["attempt"]["text"] == "status 503"
    assert kinds["call"]["text"] == "say hello" and kinds["call"]["usage"] == shown["usage"]
    text = subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout
    assert "150 tokens (in 100, 40 cached; out 50, 20 reasoning), money 0.0006" in " ".join(text.split())


def grown(db: Path, url: str, turns: int) -> int:
    """The bytes of a run's journal, blobs included, after so many turns of one conversation."""
    with Surefoot(db) as sf:

        @workflow(name=f"talk{turns}")
        def talk() -> None:
            client, messages = openai_client(url, http.client()), list[Any](ASK)
            for turn in range(turns):
                answer = client.chat.completions.create(model="m", messages=messages).choices[0].message
                messages += [{"role": "assistant", "content": answer.content}]
                messages += [{"role": "user", "content": f"question {turn} " + "x" * 500}]

        sf.run(talk, id="r")
        read = sf.store.read_run("r")
        assert read is not None
        named = [unpack(entry.value)[0].request for entry in read[1]]
        last = request_body(sf.store.read_blob, named[-1])
        assert len(last["messages"]) == 2 * turns - 1 and last["messages"][0] == ASK[0] and last["model"] == "m"
    import sqlite3

    connection = sqlite3.connect(db)
    entries = connection.execute("SELECT sum(length(slot) + length(preview) + length(value)) FROM entries").fetchone()
    blobs = connection.execute("SELECT sum(length(content) + length(hash)) FROM blobs").fetchone()
    connection.close()
    return entries[0] + blobs[0]


def test_a_journal_grows_with_the_conversation_and_not_with_its_square(tmp_path: Path) -> None:
    with ModelServer(replies("an answer of some length " * 20), strict=False) as models:
        short, long = (grown(tmp_path / f"{turns}.db", models.url, turns) for turns in (20, 40))
    assert long / short <= 2.2


def test_a_call_outside_any_run_is_told_or_refused(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_told", set())
    with ModelServer(replies("hi"), strict=False) as models:
        with pytest.warns(http.NotRecorded, match="outside any run"):
            openai_client(models.url, http.client()).chat.completions.create(model="m", messages=ASK)
        with pytest.raises(UsageError, match="outside any run"):
            http.client(outside="refuse").post(f"{models.url}/v1/chat/completions", json=BODY)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with http.client(outside="plain") as client:
                client.post(f"{models.url}/v1/chat/completions", json=BODY)
        assert len(models.asks) == 2


def test_a_call_in_a_step_is_the_steps_and_counted(db: Path) -> None:
    with ModelServer(replies(Say(text="ok", usage=Reported(input=10, output=5))), strict=False) as models:

        @step(name="assess")
        def assess() -> str:
            client = anthropic_client(models.url, http.client())
            return client.messages.create(model="m", max_tokens=9, messages=ASK).content[0].text  # type: ignore[union-attr]

        first, again = run_twice(db, assess)
        assert first == again == "ok" and len(models.paid()) == 1
    with Surefoot(db) as sf:
        read = sf.store.read_run("r")
        assert read is not None
        assert [entry.slot.partition(":")[0] for entry in read[1]] == ["spent", "assess"]


def test_a_model_that_is_called_beside_the_journal_is_told_and_stands_in_the_run(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "_told", set())
    blind.watch(lambda: settings_of())
    with ModelServer(replies("hi"), strict=False) as models, Surefoot(db) as sf:

        @workflow
        def agent() -> int:
            for _ in range(2):
                requests.post(f"{models.url}/v1/chat/completions", json=BODY, headers={"Authorization": "Bearer k"})
            return requests.post(f"{models.url}/tell", json={}).status_code

        with pytest.warns(http.NotRecorded, match="called through requests") as told:
            sf.run(agent, id="r")
        # `warns` sees all that is warned meanwhile, so also what another test left to the garbage collector.
        assert [one.category for one in told].count(http.NotRecorded) == 1
        read = sf.store.read_run("r")
        assert read is not None
        assert [entry.slot.partition(":")[0] for entry in read[1]] == ["note"]
        sf.run(agent, id="r")
    command = [str(Path(sys.executable).with_name("surefoot")), "show", "r", "--db", str(db), "--json"]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert "requests, which nothing records" in shown["notes"][0]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/model/x/converse", True),
        ("https://s3.eu-west-1.amazonaws.com/bucket/key", False),
        ("wss://api.openai.com/v1/realtime?model=x", True),
        ("grpc://us-central1-aiplatform.googleapis.com:443", True),
        ("grpc://spanner.googleapis.com:443", False),
        ("https://api.anthropic.com/v1/messages", True),
        ("https://example.org/v1/messages", False),
        ("https://api.openai.com/v1/files", False),
    ],
)
def test_addresses_of_models_are_known(url: str, found: bool) -> None:
    assert blind.is_models(url, settings_of()) is found
