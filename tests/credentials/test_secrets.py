"""No secret is ever written in clear: the files of the store, what the commands print, texts, logs and tracebacks are
searched for the bytes of every token that the provider ever issued, and of the keys."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot import Attempt, Surefoot, effect, natural, workflow
from surefoot.credentials import Credential, CredentialError, Token, TokenContract, grace, reusable, strict
from surefoot.testing.clock import FakeClock
from surefoot.testing.ledger import Ledger
from surefoot.testing.oauth import EndpointError, Fault, Promise, TokenEndpoint

KEYS = [bytes(range(32)), bytes(range(100, 132))]
COMMANDS = (["doubts"], ["doctor"], ["runs"], ["show", "mail"], ["resolve", "-", "zzz", "--abandon", "--why", "x"])


class Talkative:
    """A provider and a client library that put secrets into every text that they can."""

    def __init__(self, promise: Promise) -> None:
        self.endpoint = TokenEndpoint(promise, Ledger())
        self.texts: list[str] = []

    def exchange(self, attempt: Attempt, refresh_token: str) -> Any:
        status, body = self.endpoint.exchange(refresh_token)
        try:
            if status == 0:
                raise TimeoutError(f"POST /token?refresh_token={refresh_token}: no answer")
            if status >= 400 or "unexpected" in body:
                raise EndpointError(status, {**body, "sent": refresh_token})
        except Exception as error:
            raise RuntimeError(f"{error} for {refresh_token}", body) from error
        return body

    def ask(self, ask: Callable[[], object]) -> None:
        """Keep every text of what is raised, with all that hangs on it."""
        try:
            ask()
        except CredentialError as error:
            self.texts += ["".join(traceback.format_exception(error)), repr(error), repr(vars(error))]

    def secrets(self) -> list[bytes]:
        texts = [*self.endpoint._refresh, *self.endpoint._access]
        raw = [text.encode() for text in texts]
        keys = [*KEYS, *(base64.b64encode(key) for key in KEYS), *(key.hex().encode() for key in KEYS)]
        return [*raw, *(base64.b64encode(each)[:-4] for each in raw), *keys]


def renew(held: Credential) -> str:
    """Another access token than the one before."""
    held.access_token(min_seconds=0) if held.view().state == "ready" else None
    seen = held._seen
    return held.access_token(refused=seen.held.access_token if seen is not None and seen.held is not None else None)


def files_of(db: Path) -> list[str]:
    """The database, its log, and whatever else lies beside it."""
    return [path.read_bytes().decode("latin-1") for path in db.parent.rglob("*") if path.is_file()]


PROGRAM = """
import json, sys
from surefoot.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["surefoot", *arguments]
    try:
        main()
    except SystemExit:
        pass
"""


def commands(db: Path, *lines: list[str]) -> str:
    """What these commands say about the store, for people and for programs."""
    jobs = [[line[0], "--db", str(db), *form, *line[1:]] for line in lines for form in ([], ["--json"])]
    command = [sys.executable, "-c", PROGRAM, json.dumps(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout + done.stderr


def live(world: Talkative, db: Path, receiver: TokenContract) -> None:
    """Every way in which a token can come, be lost, be refused, be replaced and be given up."""
    keys = [KEYS[0]]
    held = Credential("gmail:acme", refresh=world.exchange, receiver=receiver, key=lambda: keys)

    @effect(natural(), identity="mail:{number}")
    def mail(attempt: Attempt, number: int) -> str:
        assert renew(held) and held.headers()["Authorization"]
        return "sent"

    @workflow
    def mails(number: int) -> str:
        return mail(number)

    with Surefoot(db, clock=FakeClock()) as surefoot:
        held.connect(Token.of(world.endpoint.authorize("one")))
        surefoot.run(mails, 1, id="mail")
        for fault in (Fault.CLIENT, Fault.LOST, Fault.ERROR, Fault.GARBLED, Fault.SLOW):
            world.endpoint.faults = [fault]
            world.ask(lambda: renew(held))
            if held.view().state == "needs_reconnect":
                world.ask(lambda: renew(held))
                if fault is not Fault.GARBLED:
                    held.reconnect(Token.of(world.endpoint.authorize(fault)))
        keys[:] = [KEYS[1]]
        world.ask(lambda: renew(held))
        keys[:] = [KEYS[1], KEYS[0]]
        held.reconnect(Token.of(world.endpoint.authorize("last")))
        world.ask(lambda: renew(held))
        world.endpoint.revoke("last")
        world.ask(lambda: renew(held))
        world.texts += [repr(held), str(held.view()), repr(held._seen)]
        world.texts += files_of(db)
        world.texts.append(commands(db, *COMMANDS))


@pytest.mark.parametrize(
    ("promise", "receiver"),
    [(Promise.STRICT, strict()), (Promise.GRACE, grace(600)), (Promise.ROTATING, reusable())],
    ids=["strict", "grace", "reusable"],
)
def test_no_secret_is_found_anywhere(
    promise: Promise, receiver: TokenContract, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world, db = Talkative(promise), tmp_path / "agents.db"
    live(world, db, receiver)
    assert (tmp_path / "agents.db").exists() and len(world.texts) > 10 and len(world.secrets()) > 10
    everything = "\n".join([*world.texts, *files_of(db), caplog.text])
    assert "credential.refresh" in everything and "gmail:acme" in everything
    found = [secret for secret in world.secrets() if secret.decode("latin-1") in everything]
    assert found == []


def test_a_receipt_that_a_person_typed_in_is_not_shown(tmp_path: Path) -> None:
    world, db = Talkative(Promise.STRICT), tmp_path / "agents.db"
    held = Credential("gmail:acme", refresh=world.exchange, receiver=strict(), key=lambda: KEYS)
    with Surefoot(db):
        held.connect(Token.of(world.endpoint.authorize("one")))
        world.endpoint.faults = [Fault.LOST]
        world.ask(lambda: renew(held))
        key = held.view().effect
    typed = '{"refresh_token":"refresh-typed"}'
    commands(db, ["resolve", "-", key[:12], "--happened", typed, "--why", "x"])
    with Surefoot(db):
        world.texts.clear()
        world.ask(lambda: renew(held))
        assert "decided" in world.texts[0] and "refresh-typed" not in "".join(world.texts)
        held.reconnect(Token.of(world.endpoint.authorize("two")))
        world.ask(lambda: renew(held))
        assert held.view().state == "ready"
