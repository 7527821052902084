"""Model calls over HTTP: a client on its own, and the same client with the journal, in turns in one process.

The model is a process of its own on loopback that answers at once, so that what is measured is what the journal adds.
Its answers are small; what a real model takes is thousands of times more.
"""

import json
import socket
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
from protocol import arguments, percentile, raw_commits_us

from surefoot import Surefoot, http, workflow

TEXT = "a sentence of an answer, sixty characters long, as it is said "
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT * 8}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200},
    }
).encode()  # fmt: skip
PIECES = [{"delta": {"content": word + " "}, "index": 0, "finish_reason": None} for word in TEXT.split()]
PIECES[-1]["finish_reason"] = "stop"
EVENTS = [b"data: " + json.dumps({"id": "c", "choices": [piece]}).encode() + b"\n\n" for piece in PIECES]
STREAM = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in [*EVENTS, b"data: [DONE]\n\n"]) + b"0\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Crash(BaseException):
    """Ends a run as a crash would."""


def serve(connection: socket.socket) -> None:
    """Answer each request of one connection at once."""
    buffer = b""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            while b"\r\n\r\n" not in buffer:
                part = connection.recv(1 << 20)
                if not part:
                    return
                buffer += part
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            while len(buffer) < length:
                buffer += connection.recv(1 << 20)
            body, buffer = buffer[:length], buffer[length:]
            connection.sendall(SSE_HEAD + STREAM if b'"stream":true' in body else JSON_HEAD + ANSWER)


def be_the_model() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


def question(number: int, *, stream: bool = False) -> dict[str, Any]:
    messages = [{"role": "system", "content": TEXT * 4}, {"role": "user", "content": f"question {number}"}]
    return {"model": "m", "messages": messages, "stream": stream}


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def cpu_of(work: Callable[[], Any]) -> float:
    """Milliseconds of this thread's processor, which other work on the machine changes less."""
    started = time.thread_time()
    work()
    return (time.thread_time() - started) * 1e3


def first_event(client: httpx2.Client, url: str, number: int) -> float:
    """Milliseconds until the first event is there; the rest is read too."""
    started = time.perf_counter()
    with client.stream("POST", url, json=question(number, stream=True)) as answer:
        pieces = answer.iter_bytes()
        next(pieces)
        took = (time.perf_counter() - started) * 1e3
        for _ in pieces:
            continue
    return took


def in_a_run(folder: str, name: str, body: Callable[[httpx2.Client], Any], *, crash: bool = False) -> Any:
    """What `body` gives of a client with the journal, in a run; the run may end in a crash."""
    got: list[Any] = []

    @workflow(name=name)
    def agent() -> None:
        with http.client(outside="refuse") as client:
            got.append(body(client))
        if crash:
            raise Crash

    with Surefoot(f"{folder}/surefoot.db") as sf:
        try:
            sf.run(agent, id=name)
        except Crash:
            pass
    return got[0]


def calls(folder: str, url: str, count: int, *, stream: bool) -> dict[str, Any]:
    """A call with the journal beside one without, in turns, and a commit of the same disk."""
    plain, ours = list[float](), list[float]()
    cpu: dict[str, float] = {}

    def body(client: httpx2.Client) -> None:
        with httpx2.Client() as raw:
            for name, held in () if stream else (("plain", raw), ("ours", client)):
                asks = [question(-number - count * (name == "ours")) for number in range(1, count + 1)]
                cpu[name] = cpu_of(lambda held=held, asks=asks: [held.post(url, json=ask) for ask in asks]) / count
            for number in range(count):
                for held, times in ((raw, plain), (client, ours)):
                    if stream:
                        times.append(first_event(held, url, number))
                    else:
                        times.append(timed(lambda held=held, number=number: held.post(url, json=question(number))))

    in_a_run(folder, "calls", body)
    commit_ms = percentile(raw_commits_us(folder), 50) / 1e3
    plain_ms, ours_ms = percentile(plain[8:], 50), percentile(ours[8:], 50)
    added_ms = statistics.median(mine - other for mine, other in zip(ours[8:], plain[8:], strict=True))
    return {
        "plain_ms": plain_ms, "ours_ms": ours_ms, "commit_ms": commit_ms, "added_ms": added_ms,
        "over_ms": added_ms - commit_ms, "cpu_ms": cpu["ours"] - cpu["plain"] if cpu else None,
    }  # fmt: skip


def talk(client: httpx2.Client, url: str, turns: int, mark: Callable[[int], None]) -> None:
    """A conversation, each turn of which sends all of it."""
    messages: list[Any] = [{"role": "system", "content": TEXT * 4}]
    for turn in range(1, turns + 1):
        messages.append({"role": "user", "content": f"question {turn}: {TEXT * 4}"})
        answer = client.post(url, json={"model": "m", "messages": messages}).json()
        messages.append(answer["choices"][0]["message"])
        mark(turn)


def growth(folder: str, url: str, turns: int) -> dict[str, Any]:
    """Bytes of the journal, blobs included, at half of the turns and at all of them; and of the requests as sent."""
    sizes: dict[int, int] = {}

    def mark(turn: int) -> None:
        if turn in (turns // 2, turns):
            db = sqlite3.connect(f"file:{folder}/surefoot.db?mode=ro", uri=True)
            entries = "SELECT sum(length(slot) + length(preview) + length(value)) FROM entries"
            blobs = "SELECT sum(length(hash) + length(content)) FROM blobs"
            sizes[turn] = sum(db.execute(query).fetchone()[0] for query in (entries, blobs))
            db.close()

    in_a_run(folder, "talk", lambda client: talk(client, url, turns, mark))
    return {"half_bytes": sizes[turns // 2], "full_bytes": sizes[turns], "ratio": sizes[turns] / sizes[turns // 2]}


def replay(folder: str, url: str, count: int) -> dict[str, Any]:
    """Milliseconds that `count` recorded calls take a run that is resumed; and those of a conversation."""

    def ask_all(client: httpx2.Client) -> None:
        for number in range(count):
            client.post(url, json=question(number))

    def apart(client: httpx2.Client) -> float:
        return timed(lambda: ask_all(client))

    def apart_cpu(client: httpx2.Client) -> float:
        return cpu_of(lambda: ask_all(client))

    def talked(client: httpx2.Client) -> float:
        return timed(lambda: talk(client, url, count, lambda turn: None))

    found = {"live_ms": in_a_run(folder, "apart", apart, crash=True)}
    found["cpu_ms"] = in_a_run(folder, "apart", apart_cpu, crash=True)
    found["replay_ms"] = in_a_run(folder, "apart", apart)
    in_a_run(folder, "talk", talked, crash=True)
    return {**found, "talk_ms": in_a_run(folder, "talk", talked)}


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        be_the_model()
        return
    args = arguments(("def",))
    model = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert model.stdout is not None
        url = f"http://127.0.0.1:{int(model.stdout.readline())}/v1/chat/completions"
        match args.work:
            case "call" | "stream":
                answer = calls(args.dir, url, args.n, stream=args.work == "stream")
            case "grow":
                answer = growth(args.dir, url, args.n)
            case _:
                answer = replay(args.dir, url, args.n)
    finally:
        model.kill()
        model.wait()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
