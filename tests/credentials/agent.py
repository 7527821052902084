"""Jobs of processes that share one credential: they ask for tokens, use them, and die where they are told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from surefoot import Attempt, Surefoot
from surefoot.core.commands import Commit
from surefoot.credentials import (
    Credential,
    NeedsReconnect,
    Token,
    TokenContract,
    family_revocation,
    grace,
    reusable,
    strict,
)
from surefoot.testing.crash import When, strike_at
from surefoot.testing.oauth import Fault, authorize, exchange, use

Say = Callable[[str], object]
KEY = bytes(range(32))
TIMEOUT = 20.0
GRACE_SECONDS = 600.0
RECEIVERS: dict[str, TokenContract] = {
    "strict": strict(),
    "family_revocation": family_revocation(),
    "grace": grace(GRACE_SECONDS),
    "reusable": reusable(),
    "rotating": reusable(),
}
COMMITS = {"undeclared": (1, "before"), "declared": (1, "after"), "unrecorded": (2, "before"), "recorded": (2, "after")}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def credential(say: Say, port: int, name: str, promise: str, dies: str = "") -> Credential:
    def refresh(attempt: Attempt, refresh_token: str) -> Any:
        if dies == "unsent":
            die()
        say("sending")
        fault = Fault.LOST if dies == "acted" else Fault.NONE
        answer = exchange(port, refresh_token, timeout=attempt.timeout, fault=fault)
        if dies == "answered":
            die()
        return answer

    return Credential(name, refresh=refresh, receiver=RECEIVERS[promise], key=lambda: KEY, timeout=TIMEOUT)


def connect(say: Say, db: str, port: int, name: str, promise: str) -> None:
    """A person authorizes it; the access token that came along is not used."""
    with Surefoot(db):
        held = credential(say, port, name, promise)
        token = Token(refresh_token=Token.of(authorize(port, name)).refresh_token)
        if held.view().state == "not_connected":
            held.connect(token)
        else:
            held.reconnect(token)
        say(held.view().state)


def ask(say: Say, db: str, port: int, name: str, promise: str, dies: str) -> None:
    """Ask for one token, use it, and say what the resource said."""
    number, when = COMMITS.get(dies, (0, "before"))
    with Surefoot(db) as surefoot:
        held = credential(say, port, name, promise, dies)
        moment: When = "before" if when == "before" else "after"
        driver = strike_at(number, die, when=moment, kind=Commit)
        driver.drive(surefoot)
        try:
            token = held.access_token()
        except NeedsReconnect as error:
            say(f"needs_reconnect {error.effect} {error}")
            return
        say(f"used {use(port, token)}")


def fleet(say: Say, db: str, port: int, name: str, promise: str, uses: int, every: int) -> None:
    """Use tokens again and again, each asked for anew; each `every`-th time the last one is turned down."""
    token, statuses = "", list[str]()
    with Surefoot(db):
        held = credential(lambda line: None, port, name, promise)
        for number in range(1, uses + 1):
            token = held.access_token(refused=token if number % every == 0 else None)
            statuses.append(str(use(port, token)))
    say(" ".join(statuses))
