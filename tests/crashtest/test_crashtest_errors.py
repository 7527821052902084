"""What cannot be tested is said so, with what was found and what to do next."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot.crashtest.api import crash
from surefoot.crashtest.boundary import Arrival, difference
from surefoot.crashtest.config import fill, load_config, make_config, read_allowed
from surefoot.crashtest.errors import CrashtestError
from surefoot.crashtest.main import run
from surefoot.testing.twins.messages import Call
from tests.crashtest.world import MODEL, SHOP, charging

POST = "import os, urllib.request as u; u.urlopen(u.Request(os.environ['SHOP_URL'] + '/charges', b'{\"order\": %s}'))"


def program(tmp_path: Path, text: str, **keys: Any) -> None:
    """Crash-test a line of Python that may call the shop."""
    services = {"shop": {**SHOP, **keys.pop("shop", {})}}
    crash([sys.executable, "-c", text], **{"here": tmp_path, "services": services, "windows": ["before"], **keys})


def test_a_command_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"does not start.*run in .* without a shell.*'no-such-program'"):
        crash("no-such-program --fast", here=tmp_path, services={"shop": SHOP})


def test_a_command_that_ends_badly_when_nobody_kills_it(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"ended with exit code 3.*it must end well"):
        program(tmp_path, POST % 1 + "; print('no luck'); raise SystemExit(3)")


def test_a_command_that_makes_no_requests(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"makes no requests.*shop by SHOP_URL.*proxy = true.*hello"):
        program(tmp_path, "print('hello')")


def test_no_services_at_all(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"add \[services.NAME\]"):
        crash([sys.executable, "-c", "pass"], here=tmp_path)


def test_a_command_that_needs_a_terminal(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"(?s)needs a terminal.*EOFError"):
        program(tmp_path, "input('sure? ')")


def test_a_command_that_hangs_without_being_killed(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"did not end in 1 s.*raise timeout_seconds"):
        program(tmp_path, POST % 1 + "; import time; time.sleep(60)", timeout_seconds=1)


def test_two_clean_runs_that_differ_are_told_with_the_request(tmp_path: Path) -> None:
    text = (
        "import os, urllib.request as u, uuid; u.urlopen(os.environ['SHOP_URL'] + '/things/x' + uuid.uuid4().hex[:6])"
    )
    route = {"request": "GET /things/{thing}"}
    with pytest.raises(CrashtestError, match=r"two clean runs differ: request 1 was shop GET /things/x.*`ignore`"):
        program(tmp_path, text, shop={"routes": [route]})
    program(tmp_path, text, shop={"routes": [route]}, ignore=["x[0-9a-f]{6}$"])


def test_effects_that_are_named_by_new_ids_are_told(tmp_path: Path) -> None:
    text = POST % "' + str(__import__('time').time_ns()).encode() + b'"
    with pytest.raises(CrashtestError, match=r"differ in what they did.*name effects by what they are about"):
        program(tmp_path, text)


def test_state_outside_of_the_world_is_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    text = f"import pathlib, sys; p = pathlib.Path({str(outside)!r}); p.exists() and sys.exit(); p.touch(); {POST % 1}"
    with pytest.raises(CrashtestError, match=r"two clean runs differ.*keeps state outside of its world"):
        program(tmp_path, text)


def test_a_path_that_no_route_answers(tmp_path: Path) -> None:
    text = "import os, urllib.request as u; u.urlopen(os.environ['SHOP_URL'] + '/refunds')"
    with pytest.raises(CrashtestError, match=r"shop has no route for GET /refunds; its routes are POST /charges"):
        program(tmp_path, text)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CrashtestError, match=rf"port {port} of services.shop is in use"):
            program(tmp_path, POST % 1, shop={"port": port})


def test_a_service_of_ones_own_that_does_not_listen(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no config'); raise SystemExit(1)"]
    with pytest.raises(CrashtestError, match=r"services.shop does not listen.*no config"):
        program(tmp_path, POST % 1, shop={"kind": "command", "command": command, "routes": []})


def test_a_folder_that_is_too_large_to_copy(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").touch()
    import os

    os.truncate(tmp_path / "weights.bin", 60_000_000)
    with pytest.raises(CrashtestError, match=r"too much to copy.*files ="):
        program(tmp_path, POST % 1)
    program(tmp_path, POST % 1, files=["*.py"])


def test_fork_is_for_python_scripts(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match="leave fork out"):
        crash("node agent.js", here=tmp_path, services={"shop": SHOP}, fork=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"comand": "x"}, "unknown field `comand`"),
        ({"services": {"shop": {"kind": "shop"}}}, "services"),
        ({"services": {"a b": {"kind": "http"}}}, "cannot be called 'a b'"),
        ({"services": {"up": {"kind": "upstream"}}}, "needs url"),
        ({"services": {"m": {"kind": "model"}}}, "needs turns"),
        ({"services": {"shop": {**SHOP, "routes": [{"request": "charges"}]}}}, "expected a method and a path"),
        (
            {"services": {"t": {"kind": "twin", "receiver": "stripe.v999", "env": {"SHOP_URL": ""}}}},
            "surefoot receivers",
        ),
        ({"windows": ["during"]}, "windows are some of before, effect, read, recorded; found 'during'"),
        ({"rows": ["thrice"]}, "rows are some of twice, .*; found 'thrice'"),
        ({"threshold": {"duplicate": 1}}, "threshold 'duplicate' is unknown"),
        ({"only": "("}, "is not a regular expression"),
        ({"rows": ["deploy"]}, "need the new command"),
        ({"restarts": -1}, "restarts must be 0 or more"),
        ({"command": "python 'agent"}, "cannot be read"),
        ({"only": "nothing like it"}, "leave no boundary"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_configuration_that_makes_no_sense(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(CrashtestError, match=message):
        crash(**{"command": [sys.executable, "-c", POST % 1], "here": tmp_path, "services": {"shop": SHOP}, **change})


def test_a_file_that_is_missing_or_no_toml_and_a_variant_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match="there is no"):
        load_config(tmp_path / "crashtest.toml")
    file = tmp_path / "crashtest.toml"
    file.write_text("command = ")
    with pytest.raises(CrashtestError, match="is not TOML"):
        load_config(file)
    file.write_text('command = "a"\n[variants.one]\ncommand = "b"\n[variants.one.env]\nX = "1"\n[env]\nY = "2"\n')
    with pytest.raises(CrashtestError, match="no variant 'two'; it has one"):
        load_config(file, variant="two")
    one = load_config(file, variant="one")
    assert (one.command, one.env) == ("b", {"X": "1", "Y": "2"})


def test_placeholders_are_filled_and_other_braces_stay() -> None:
    assert fill('{shop}/v1 {"a": {b}} {nobody}', {"shop": "http://x", "b": "1"}) == 'http://x/v1 {"a": 1} {nobody}'
    assert read_allowed(["extra-tokens=5,asks=2", "lost=1"]) == {"extra_tokens": 5.0, "asks": 2.0, "lost": 1.0}
    with pytest.raises(CrashtestError, match="expects NAME=NUMBER"):
        read_allowed(["lost"])


def test_the_difference_of_two_runs_names_the_first_request_that_differs() -> None:
    def arrivals(*places: str) -> list[Arrival]:
        call = Call(method="GET", path="/")
        return [
            Arrival(number=n, service="s", place=p, occurrence=1, life=1, call=call, at=0.0, is_model=False)
            for n, p in enumerate(places, 1)
        ]

    assert difference(arrivals("GET /a", "GET /b"), arrivals("GET /b", "GET /a")) == ""
    assert "request 2 was s GET /b#1" in difference(arrivals("GET /a", "GET /b"), arrivals("GET /a", "GET /c"))
    assert "only one of them made s GET /b#1" in difference(arrivals("GET /a"), arrivals("GET /a", "GET /b"))


def test_a_model_that_is_asked_what_a_real_endpoint_refuses_is_told(tmp_path: Path) -> None:
    text = (
        "import json, os, urllib.request as u\n"
        "body = {'model': 'm', 'messages': [{'role': 'assistant', 'content': None, 'tool_calls': [{'id': 'c1', 'type': "
        "'function', 'function': {'name': 'f', 'arguments': '{}'}}]}]}\n"
        "try: u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', json.dumps(body).encode(), "
        "{'Authorization': 'Bearer x'}))\n"
        "except u.HTTPError as error: print(error.code)\n"
    )
    report = crash([sys.executable, "-c", text], here=tmp_path, services={"model": MODEL}, windows=["before"])
    assert any("what a real endpoint refuses" in text for text in report.result.warnings)


def test_an_error_is_one_line_and_the_exit_code_says_what_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["--", "true"]) == 2
    assert "there is no crashtest.toml" in capsys.readouterr().err
    assert run(["--json", "--row", "x", "--", "true"]) == 2
    assert capsys.readouterr().err.startswith('{"error": "')
    assert run(["--windows"]) == 2
    (tmp_path / "crashtest.toml").write_text('proxy = true\ncommand = "true"\n[services.shop]\nkind = "http"\n')
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("SUREFOOT_MITMDUMP", raising=False)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert run([]) == 3
    assert "pip install 'surefoot[crashtest]'" in capsys.readouterr().err


def test_relative_paths_are_of_the_file(tmp_path: Path) -> None:
    config = make_config({"command": "x"}, here=tmp_path, source="test")
    assert config.here == str(tmp_path)


def test_a_clean_run_whose_answer_is_wrong_already_is_told(tmp_path: Path) -> None:
    with pytest.raises(CrashtestError, match=r"wrong already: answer = 'order 82 is paid' is not found .*order 81"):
        charging(tmp_path, "sound", answer="order 82 is paid")
    with pytest.raises(CrashtestError, match="wrong already: the check said no: it is Friday"):
        charging(tmp_path, "sound", check=[sys.executable, "-c", "raise SystemExit('it is Friday')"])
