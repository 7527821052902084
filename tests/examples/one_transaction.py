"""The effect is a change in our own database: it commits together with its receipt, so it can never happen twice."""

import sqlite3

from surefoot import Attempt, Surefoot, create_receipts_table, effect, same_transaction, workflow


class PowerCut(BaseException):
    """Stands in for a crash."""


def connect() -> sqlite3.Connection:
    return sqlite3.connect("shop.db")


shop = connect()
shop.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER)")
shop.execute("INSERT INTO stock VALUES ('lamp', 10)")
shop.commit()
create_receipts_table(shop)
crashes = [True]


@effect(same_transaction(connect), identity="reserve:{order}")
def reserve(attempt: Attempt, order: str, item: str) -> int:
    attempt.connection.execute("UPDATE stock SET count = count - 1 WHERE item = ?", (item,))
    return attempt.connection.execute("SELECT count FROM stock WHERE item = ?", (item,)).fetchone()[0]


@workflow
def sell(order: str) -> int:
    left = reserve(order, "lamp")
    if crashes:
        crashes.pop()
        raise PowerCut
    return left


with Surefoot("agents.db") as sf:
    try:
        sf.run(sell, "A-1", id="sell-A-1")
    except PowerCut:
        print("died after reserving")
    print("left:", sf.run(sell, "A-1", id="sell-A-1"))
print("in stock:", shop.execute("SELECT count FROM stock").fetchone()[0])
