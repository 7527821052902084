"""A service that tests kill: Starlette or FastAPI under uvicorn, its work counted in a ledger that it cannot take back.

`/plain` writes a line into an fsynced ledger, as a charge at somebody else's would be. `/order` inserts a row by `once`
in a database. A file `kill-<place>` in the service's folder makes it die there, by SIGKILL, once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import fastapi
import psycopg
import uvicorn
import uvicorn.lifespan.off
import uvicorn.loops.auto
import uvicorn.protocols.http.auto
import uvicorn.protocols.websockets.auto
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from surefoot.inbox import IdempotencyMiddleware, Inbox, create_inbox_table, idempotency, idempotent
from surefoot.inbox.fastapi import Idempotency, idempotent_route
from surefoot.testing.ledger import Ledger, Line

PLACES = (
    "before-claim",
    "after-claim",
    "in-transaction",
    "after-change",
    "before-stored",
    "after-stored",
    "before-answer",
)
Json = dict[str, Any]


class Desk:
    """What the handlers need: the ledger, the orders' database, gates that hold a handler, and where to die."""

    def __init__(self, folder: Path, orders: str) -> None:
        self.folder, self.orders = folder, orders
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.lock = threading.Lock()

    def die_at(self, place: str) -> None:
        mark = self.folder / f"kill-{place}"
        if mark.exists():
            mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def hold(self) -> None:
        """Stand still while a file `hold` is there: a slow handler."""
        if (self.folder / "hold").exists():
            self.ledger.add(Line(what="held", name="hold", at=0.0))
            while (self.folder / "hold").exists():
                threading.Event().wait(0.01)

    def perform(self, name: str, key: str, body: str) -> None:
        self.ledger.add(Line(what="performed", name=name, at=0.0, key=key, body=body))

    @contextmanager
    def database(self) -> Iterator[Any]:
        postgres = self.orders.startswith("postgresql:")
        connection = psycopg.connect(self.orders) if postgres else sqlite3.connect(self.orders, timeout=20)
        with closing(connection):
            yield connection

    def plain(self, call: Any, body: Json) -> Json:
        self.hold()
        self.perform("plain", call.key, json.dumps(body))
        self.die_at("after-change")
        return {"done": body, "attempt": call.attempt}

    def order(self, call: Any, body: Json) -> Json:
        self.ledger.add(Line(what="tried", name="order", at=0.0, key=call.key))
        with self.database() as connection:
            self.hold()
            with call.once(connection) as once:
                if once.first:
                    mark = "%s" if self.orders.startswith("postgresql:") else "?"
                    cursor = connection.cursor()
                    cursor.execute(f"INSERT INTO orders (item) VALUES ({mark})", (body["item"],))
                    cursor.execute("SELECT count(*) FROM orders")
                    once.result = {"number": cursor.fetchone()[0], "item": body["item"]}
                    self.die_at("in-transaction")
        self.die_at("after-change")
        return once.result


class MortalInbox(Inbox):
    """Dies where the test says, with everything that the real one has done until then."""

    desk: Desk

    async def claim(self, ask: Any) -> Any:
        self.desk.die_at("before-claim")
        verdict = await super().claim(ask)
        self.desk.die_at("after-claim")
        return verdict

    async def end(self, ending: Any) -> Any:
        self.desk.die_at("before-stored")
        stands = await super().end(ending)
        self.desk.die_at("after-stored")
        return stands


class MortalSend:
    """Dies before an answer leaves."""

    def __init__(self, app: Any, desk: Desk) -> None:
        self.app, self.desk = app, desk

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def mortal(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.desk.die_at("before-answer")
            await send(message)

        await self.app(scope, receive, mortal)


def is_transactional(scope: Any) -> bool:
    return scope["path"].startswith(("/order", "/late", "/boast"))


Endpoints = dict[str, Callable[[Request], Any]]


def endpoints(desk: Desk) -> Endpoints:
    """Those that work as they should."""

    async def plain(request: Request) -> Response:
        body = await request.json()
        answer = JSONResponse(await in_thread(desk.plain, idempotency(request), body), status_code=201)
        answer.set_cookie("session", "secret")
        answer.headers["location"] = "/plain/1"
        answer.headers["x-not-kept"] = "1"
        return answer

    async def order(request: Request) -> Response:
        body = await request.json()
        return JSONResponse(await in_thread(desk.order, idempotency(request), body), status_code=201)

    async def status(request: Request) -> Response:
        """Does its work, then answers or raises as the request says."""
        body = await request.json()
        call = idempotency(request)
        if body.get("nothing"):
            call.nothing_happened()
        else:
            desk.perform("status", call.key, "")
        if body.get("raises") == "http":
            raise HTTPException(body["status"], "as told")
        if body.get("raises"):
            raise RuntimeError("as told")
        return PlainTextResponse("" if body["status"] == 204 else "as told", status_code=body["status"])

    return {"/plain": plain, "/order": order, "/status": status}


def odd_endpoints(desk: Desk) -> Endpoints:
    """Answers of every shape, and handlers that do what they must not."""

    async def stream(request: Request) -> Response:
        desk.perform("stream", idempotency(request).key, "")
        body = await request.json()

        async def parts() -> Any:
            await asyncio.to_thread(desk.hold)
            for _ in range(body["parts"]):
                yield b"x" * 1000

        return StreamingResponse(parts(), media_type=body.get("type", "text/plain"))

    async def large(request: Request) -> Response:
        desk.perform("large", idempotency(request).key, "")
        return Response(b"x" * 2_000_000)

    async def later(request: Request) -> Response:
        key = idempotency(request).key
        return Response(b"now", background=BackgroundTask(desk.perform, "later", key, ""))

    async def boast(request: Request) -> Response:
        """Says that it is transactional, and is not."""
        desk.perform("boast", idempotency(request).key, "")
        return Response(b"done")

    async def late(request: Request) -> Response:
        """Looks at the database before it asks once()."""
        with desk.database() as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT count(*) FROM orders")
            if cursor.fetchone()[0]:
                return PlainTextResponse("sold out", status_code=404)
        return JSONResponse(desk.order(idempotency(request), await request.json()), status_code=201)

    return {"/stream": stream, "/large": large, "/background": later, "/boast": boast, "/late": late}


def starlette_app(desk: Desk) -> Starlette:
    async def free(request: Request) -> Response:
        return PlainTextResponse((await request.body()).decode() or request.method)

    posts = {**endpoints(desk), **odd_endpoints(desk), "/optional": free}
    routes = [Route(path, endpoint, methods=["POST", "PATCH"]) for path, endpoint in posts.items()]
    return Starlette(routes=[*routes, Route("/free", free, methods=["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])])


def fastapi_app(desk: Desk, inbox: Inbox) -> fastapi.FastAPI:
    """Only its routes are protected."""
    app = fastapi.FastAPI()
    plainly = fastapi.APIRouter(route_class=idempotent_route(store=inbox))
    safely = fastapi.APIRouter(route_class=idempotent_route(store=inbox, transactional=True))

    @plainly.post("/plain", status_code=201)
    def plain(body: Json, call: Idempotency) -> Json:
        return desk.plain(call, body)

    @plainly.post("/typed/{number}")
    async def typed(number: int, call: Idempotency) -> Json:
        desk.perform("typed", call.key, str(number))
        if number > 9:
            raise fastapi.HTTPException(404, "no such number")
        return {"number": number}

    @safely.post("/order", status_code=201)
    def order(body: Json, call: Idempotency) -> Json:
        return desk.order(call, body)

    app.include_router(plainly)
    app.include_router(safely)

    @app.post("/unprotected")
    def unprotected() -> str:
        return "free"

    return app


def decorated_app(desk: Desk, inbox: Inbox) -> Starlette:
    @idempotent(store=inbox)
    async def plain(request: Request) -> Response:
        return JSONResponse(desk.plain(idempotency(request), await request.json()), status_code=201)

    @idempotent(store=inbox, transactional=True)
    def order(request: Request) -> Response:
        return JSONResponse(desk.order(idempotency(request), {"item": "lamp"}), status_code=201)

    return Starlette(routes=[Route("/plain", plain, methods=["POST"]), Route("/order", order, methods=["POST"])])


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    import asyncio

    return await asyncio.to_thread(work, *arguments)


def make_app(config: Json) -> Any:
    """`config`: folder, store and orders (paths or URLs), framework, lease in seconds, options of the middleware."""
    desk = Desk(Path(config["folder"]), config["orders"])
    inbox = MortalInbox(config["store"], lease=timedelta(seconds=config.get("lease", 30.0)))
    inbox.desk = desk
    framework = config.get("framework", "starlette")
    if framework == "fastapi":
        return MortalSend(fastapi_app(desk, inbox), desk)
    if framework == "twice":
        return MortalSend(IdempotencyMiddleware(decorated_app(desk, inbox), store=inbox), desk)
    if framework == "decorated":
        return MortalSend(decorated_app(desk, inbox), desk)
    app = IdempotencyMiddleware(
        starlette_app(desk),
        store=inbox,
        transactional=is_transactional,
        required=lambda scope: scope["path"] != "/optional",
        **config.get("options", {}),
    )
    return MortalSend(app, desk)


def serve(say: Callable[[str], None], config: Json) -> None:
    """Run it on a free port of 127.0.0.1, which is said first."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    app = make_app(config)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off"))
    say(f"port {listener.getsockname()[1]}")
    server.run(sockets=[listener])


def create_orders(orders: str) -> None:
    if orders.startswith("postgresql:"):
        with psycopg.connect(orders) as connection:
            connection.execute("CREATE TABLE orders (number SERIAL PRIMARY KEY, item TEXT)")
            connection.commit()
            create_inbox_table(connection)
    else:
        with closing(sqlite3.connect(orders)) as connection:
            connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)")
            connection.commit()
            create_inbox_table(connection)


def app() -> Any:
    """For `uvicorn --factory`: the configuration stands in an environment variable."""
    return make_app(json.loads(os.environ["INBOX_SERVICE"]))
