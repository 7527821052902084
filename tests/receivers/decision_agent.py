"""The agent of the decision table: one effect against one twin, in a process that is killed.

It is written as a user would write it: the receiver's contract, the key where the attempt says, a lookup where the
receiver can be asked. Everything it does it says into a pipe that a SIGKILL cannot take back.
"""

from __future__ import annotations

import encodings.idna
import http.client
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import msgspec

import surefoot.stores.sqlite.store
from surefoot import Disagreement, Exists, Refused, RunWaiting, Several, Surefoot, effect, workflow
from surefoot.core.commands import Look, SendEffect, Sleep
from surefoot.core.contract import Contract, Meaning
from surefoot.core.effect import Do, Event, Evidence, Status, key_of
from surefoot.core.writes import DecideEffect, Verdict
from surefoot.testing.twins import SharedClock

Say = Callable[[str], object]
TIMEOUT = 20.0
FORKED_WITH = (encodings.idna, surefoot.stores.sqlite.store)
"""Read before the first fork, so that no life pays for it."""


class Job(msgspec.Struct, kw_only=True):
    """What one life is told.

    `kill`: "before" dies before its first send, "recorded" once the first send's answer is recorded. `hangs`: stands
    still with an error in hand. `compares`: looks whether what a used key made is ours. `decision` is what a person
    decides first about what is parked.
    """

    contract: Contract
    prepare: Contract | None
    operation: str
    key_name: str
    key_place: str
    marker: str = ""
    db: str
    clock: str
    port: int
    act_port: int = 0
    run: str = "r1"
    order: str = "o1"
    text: str = "hello"
    secret: str = ""
    kill: str = ""
    hangs: bool = False
    can_ask: bool = True
    compares: bool = True
    decision: str = ""


class Answered(Exception):
    """A status that is not a success, as HTTP clients raise it."""

    def __init__(self, status_code: int, code: str, body: dict[str, Any]) -> None:
        super().__init__(f"{status_code} {code}: {body}")
        self.status_code, self.code, self.body = status_code, code, body


def call(port: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """One request, one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        response = connection.getresponse()
        content = json.loads(response.read() or b"{}")
    finally:
        connection.close()
    if response.status >= 400 or "error" in content:
        raise Answered(response.status, content["error"]["code"], content)
    return content


class Agent:
    """The effects of one life."""

    def __init__(self, say: Say, job: Job) -> None:
        self.say, self.job = say, job
        self.act = self.make("act", job.contract)
        self.prepare = self.make("prepare", job.prepare) if job.prepare is not None else None

        @workflow(name="errand")
        def errand(order: str, text: str) -> dict[str, Any]:
            draft = self.prepare(order, text, "")["id"] if self.prepare is not None else job.secret
            return self.act(order, text, draft)

        self.errand = errand

    def make(self, name: str, contract: Contract) -> Any:
        @effect(contract, identity=name + ":{order}", timeout=TIMEOUT, name=name)
        def act(attempt: Any, order: str, text: str, thing: str) -> dict[str, Any]:
            return self.send(attempt, contract, order, text, thing)

        if self.job.can_ask and contract.kind not in ("opaque", "same_transaction"):

            @act.lookup
            def find(attempt: Any, order: str, text: str, thing: str) -> dict[str, Any] | None:
                self.say("asking")
                found = call(self.job.port, "GET", f"/{self.job.operation}/{thing or attempt.key}?closed=1")["found"]
                ours = [one for one in found if one["text"] == text and bool(one.get("draft")) == (name == "prepare")]
                if len(ours) > 1:
                    raise Several(f"{len(ours)} of them are like ours")
                return ours[0] if ours else None

        return act

    def send(self, attempt: Any, contract: Contract, order: str, text: str, thing: str) -> dict[str, Any]:
        """The key goes where the attempt says; a key that the receiver made is given as `thing`."""
        job = self.job
        body = {"name": order, "text": text, "marker": job.marker or attempt.key, **attempt.fields}
        if thing:
            body[job.key_name] = thing
        elif job.key_place in ("object", "graphql_directive"):
            body[job.key_name] = attempt.key
        at_path = f"/{attempt.key}" if job.key_place == "path" else ""
        query = "&".join(f"{name}={value}" for name, value in attempt.params.items())
        path = f"/{self.job.operation}{at_path}{'?' if query else ''}{query}"
        self.say(f"sending {attempt.key}")
        port = self.job.act_port if self.job.act_port and attempt.identity.startswith("act:") else self.job.port
        try:
            made = call(port, "POST", path, body, {**attempt.headers, "X-Session": str(os.getpid())})
        except Answered as answered:
            self.say(f"failed {answered.status_code} {answered.code}")
            if self.job.hangs:
                time.sleep(60)
            named = contract.answers.meaning([answered.code, answered.status_code])
            pointer = answered.body["error"].get("made")
            if named is not None and named[0] is Meaning.LANDED and pointer and self.job.compares:
                made = call(self.job.port, "GET", f"/{self.job.operation}/{pointer}")["found"][0]
                raise Exists(made) if made["text"] == text else Refused("this key made something else") from None
            raise
        except OSError as error:
            self.say(f"failed {type(error).__name__}")
            raise
        self.say(f"answered {made['id']}")
        return made


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watch(surefoot: Surefoot, say: Say, where: str) -> None:
    """Say when it first waits; be killed before the last effect is sent, or at the first look after it was recorded."""
    handlers = dict(surefoot.engine.sync_handlers)
    sent: list[str] = []
    waited: list[str] = []

    def send(session: Any, command: Any) -> Any:
        if command.effect.name == "act" and where == "before":
            die()
        answer = handlers[SendEffect](session, command)
        sent.append(command.effect.name)
        return answer

    def look(session: Any, command: Any) -> Any:
        if "act" in sent and where == "recorded":
            die()
        return handlers[Look](session, command)

    def sleep(session: Any, command: Any) -> Any:
        if "waits" not in waited:
            waited.append("waits")
            say("waits")
        return handlers[Sleep](session, command)

    surefoot.engine.sync_handlers = {**handlers, SendEffect: send, Look: look, Sleep: sleep}


def live(say: Say, told: dict[str, Any]) -> None:
    """One life: run or resume, and say how it ended."""
    job = msgspec.convert(told, Job)
    with Surefoot(job.db, clock=SharedClock(job.clock)) as surefoot:
        agent = Agent(say, job)
        watch(surefoot, say, job.kill)
        if job.decision:
            decide(surefoot, Do(job.decision))
        say("ready")
        try:
            receipt = surefoot.run(agent.errand, job.order, job.text, id=job.run)
        except RunWaiting as waiting:
            say(f"parked {' '.join(str(waiting).split())}")
        except Disagreement as disagreement:
            say(f"disagrees {' '.join(str(disagreement).split())}")
        except Refused as refused:
            say(f"refused {' '.join(refused.reason.split())}")
        else:
            say(f"result {receipt.get('id')}")


def decide(surefoot: Surefoot, do: Do) -> None:
    """What a person does who has read the receiver's books."""
    (held,) = surefoot.store.find_effects([Status.PARKED])
    at = surefoot.engine.clock.now()
    evidence = Evidence(at=at, kind="decision", found=do, who="the ledger's reader")
    receipt = b'{"id":"as the ledger says"}' if do is Do.HAPPENED else b""
    event = Event(do=do, at=at, receipt=receipt, evidence=evidence)
    write = DecideEffect(key=held.key, event=event, stamp=next(surefoot.engine.stamps))
    verdict = surefoot.engine.committer.commit(write).verdict
    assert verdict is Verdict.DONE, verdict


def live_plainly(say: Say, told: dict[str, Any]) -> None:
    """The same errand without Surefoot: a new key each life, and one plain retry, as most agents are written."""
    job = msgspec.convert(told, Job)
    key = key_of(job.contract, os.urandom(16).hex(), time.time())
    say("ready")
    for _ in range(2):
        try:
            draft = call(job.port, "POST", f"/{job.operation}", {"text": job.text})["id"] if job.prepare else ""
            say(f"sending {key}")
            body: dict[str, Any] = {"name": job.order, "text": job.text}
            if job.marker:
                body["marker"] = job.marker
            if job.secret or draft or job.key_place == "object" or job.contract.place in ("body", "property"):
                body[job.key_name] = job.secret or draft or key
            headers = {job.key_name: key} if job.key_place == "header" else {}
            at_path = f"/{key}" if job.key_place == "path" else ""
            say(f"result {call(job.port, 'POST', f'/{job.operation}{at_path}', body, headers)['id']}")
            return
        except (Answered, OSError) as error:
            say(f"failed {error}")
    say("refused")
