"""Workflows whose runs the tests look at. Also a program: `agents.py DB KIND ID` starts one and dies or hangs in it."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import surefoot
from surefoot import Surefoot, effect, keyed, lookup, opaque, step, workflow

sent: list[str] = []
"""What the bodies of effects did in this process, in order."""

edited: list[str] = []
"""Not empty: the code of `changing` has been edited since."""


@step
def assess(partner: str) -> dict[str, Any]:
    return {"text": "low risk", "usage": {"prompt_tokens": 4000, "completion_tokens": 400, "total_tokens": 4400}}


@step
def draft(text: str) -> list[dict[str, Any]]:
    return [{"content": text, "usage": {"input_tokens": 5000, "output_tokens": 900}}, {"no": "usage"}]


@step(retries=1)
def flaky(name: str) -> str:
    sent.append(f"flaky {name}")
    if sent.count(f"flaky {name}") == 1 or name == "hopeless":
        raise ValueError("not yet")
    return name


@effect(opaque(), timeout=0.2)
def page(attempt: Any, who: str) -> dict[str, Any] | None:
    sent.append(f"page {who}")
    if sent.count(f"page {who}") == 1:
        raise TimeoutError("the pager did not answer")
    return {"id": who}


@effect(opaque(), identity="outside:{who}", timeout=0.2)
def alarm(attempt: Any, who: str) -> str:
    sent.append(f"alarm {who}")
    raise TimeoutError("no answer")


@effect(keyed(window=timedelta(hours=1)), identity="review:{partner}", timeout=0.2)
def ticket(attempt: Any, partner: str, body: str) -> dict[str, Any]:
    sent.append(f"ticket {partner}")
    return {"ticket": partner}


@effect(keyed(window=timedelta(hours=1)), timeout=0.2)
def deadly(attempt: Any, how: str) -> str:
    print("sending", flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    return how


@effect(lookup(lag=0.1), timeout=0.2)
def seen(attempt: Any, who: str) -> str:
    raise TimeoutError("no answer")


@seen.lookup
def _(attempt: Any, who: str) -> str | None:
    return f"seen {who}"


@workflow
def onboard(partner: str) -> dict[str, Any]:
    text = assess(partner)["text"]
    draft(text)
    return {"page": page(partner)}


@workflow
def retry(name: str) -> str:
    moment = surefoot.now()
    return f"{flaky(name)} since {moment.year > 2000}"


@workflow
def twice(who: str) -> list[Any]:
    return [page(f"{who} 1"), page(f"{who} 2")]


@workflow
def review(partner: str, body: str) -> dict[str, Any]:
    return ticket(partner, body)


@workflow
def shared(who: str) -> str:
    return alarm(who)


@workflow
def changing(who: str) -> dict[str, Any] | None:
    assess(who)
    if edited:
        ticket(who, "new")
    else:
        draft(who)
    return page(who)


@workflow
def hostile(text: str) -> str:
    raise ValueError(text)


@workflow
def large(size: int) -> str:
    return "x" * size


@workflow
def look(who: str) -> str:
    return seen(who)


@workflow
def sleeper(how: str) -> str:
    assess(how)
    return deadly(how)


@step
def hang(how: str) -> str:
    print("hanging", flush=True)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "interrupt":
        raise KeyboardInterrupt
    time.sleep(60)
    return how


@workflow
def hanger(how: str) -> str:
    assess(how)
    return hang(how)


if __name__ == "__main__":
    where, kind, how, name = sys.argv[1:5]
    with Surefoot(where, lease=float(sys.argv[5]) if len(sys.argv) > 5 else 15.0) as sf:
        sf.run({"step": hanger, "effect": sleeper}[kind], how, id=name)
