"""A protected endpoint: one client repeats its request, another reuses the key, a third forgets it."""

import asyncio
import sqlite3

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from surefoot.inbox import IdempotencyMiddleware, create_inbox_table, idempotency

setup = sqlite3.connect("shop.db")
setup.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)")
setup.commit()
create_inbox_table(setup)


async def order(request: Request) -> JSONResponse:
    wanted = await request.json()
    shop = sqlite3.connect("shop.db")
    with idempotency(request).once(shop) as call:  # the order and its result commit together
        if call.first:
            number = shop.execute("INSERT INTO orders (item) VALUES (?)", (wanted["item"],)).lastrowid
            call.result = {"number": number, "item": wanted["item"]}
    shop.close()
    return JSONResponse(call.result, status_code=201)


app = Starlette(routes=[Route("/orders", order, methods=["POST"])])
app.add_middleware(IdempotencyMiddleware, store="inbox.db", transactional=True)


async def main() -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        key = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}
        for body, headers in (({"item": "lamp"}, key), ({"item": "lamp"}, key), ({"item": "desk"}, key), ({}, {})):
            answer = await client.post("/orders", json=body, headers=headers)
            replayed = " (replayed)" if "idempotent-replayed" in answer.headers else ""
            print(answer.status_code, answer.json().get("title", answer.text) + replayed)


asyncio.run(main())
print("orders:", setup.execute("SELECT count(*) FROM orders").fetchone()[0])
setup.close()
