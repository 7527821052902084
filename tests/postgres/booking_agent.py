"""An agent that books in its user's own PostgreSQL database: a forked child that dies where it is told."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import Session

import surefoot.stores.postgres.store  # noqa: F401
from surefoot import Surefoot, create_receipts_table, effect, same_transaction, workflow
from surefoot.core.commands import SendEffect
from surefoot.testing.crash import strike_at

APP = [""]
DRIVER = [""]
DIES_IN_BODY = [False]
SAY: list[Callable[[str], object]] = [print]
INSERT = "INSERT INTO orders VALUES ('{}')"


def connect() -> Any:
    """What a user has: a psycopg connection, or SQLAlchemy's Connection or Session."""
    if DRIVER[0].startswith("psycopg"):
        return psycopg.connect(APP[0], autocommit=DRIVER[0] == "psycopg autocommit")
    engine = sa.create_engine(APP[0].replace("postgresql://", "postgresql+psycopg://"), poolclass=sa.NullPool)
    return engine.connect() if DRIVER[0] == "connection" else Session(engine)


@effect(same_transaction(connect), timeout=5, budget=1)
def book(attempt: Any, order: str) -> dict[str, str]:
    statement = INSERT.format(order)
    attempt.connection.execute(statement if DRIVER[0].startswith("psycopg") else sa.text(statement))
    SAY[0]("inserted")
    if DIES_IN_BODY[0]:
        die()
    return {"order": order}


@workflow
def booking(order: str) -> dict[str, str]:
    return book(order)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def prepare(url: str, driver: str) -> None:
    """The user's tables, and the one for receipts."""
    APP[0], DRIVER[0] = url, driver
    with psycopg.connect(url) as db:
        db.execute("CREATE TABLE IF NOT EXISTS orders (name text)")
    connection = connect()
    create_receipts_table(connection)
    connection.close()


def run_booking(say: Callable[[str], object], store: str, app: str, driver: str, place: str) -> None:
    """Book an order, and die at `place`: before, body, after, or nowhere."""
    SAY[0], APP[0], DRIVER[0], DIES_IN_BODY[0] = say, app, driver, place == "body"
    with Surefoot(store) as sf:
        when = "before" if place == "before" else "after"
        strike_at(1 if place in ("before", "after") else 0, die, when=when, kind=SendEffect).drive(sf)  # type: ignore[arg-type]
        say(f"result {sf.run(booking, 'o1', id='o1')}")


def run_many(say: Callable[[str], object], store: str, app: str, driver: str, orders: int) -> None:
    """Book so many orders, one after the other; of each a line."""
    SAY[0], APP[0], DRIVER[0] = lambda line: None, app, driver
    with Surefoot(store) as sf:
        for number in range(orders):
            sf.run(booking, f"o{number}", id=f"o{number}")
            say(f"booked {number}")
