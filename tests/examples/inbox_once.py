"""A message may arrive twice: `once` makes its change in our own database once, and both deliveries get the result."""

import sqlite3

from surefoot.inbox import KeyReused, create_inbox_table, once

shop = sqlite3.connect("shop.db")
shop.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER)")
shop.execute("INSERT INTO stock VALUES ('lamp', 10)")
shop.commit()
create_inbox_table(shop)


def reserve(key: str, request: dict) -> dict:
    with once(shop, key, request) as call:
        if call.first:
            shop.execute("UPDATE stock SET count = count - ? WHERE item = ?", (request["count"], request["item"]))
            (left,) = shop.execute("SELECT count FROM stock WHERE item = ?", (request["item"],)).fetchone()
            if left < 0:
                raise ValueError("sold out")  # takes back the change and the key
            call.result = {"left": left}
    return call.result


print(reserve("order-1", {"item": "lamp", "count": 3}))
print(reserve("order-1", {"item": "lamp", "count": 3}))
try:
    reserve("order-1", {"item": "lamp", "count": 4})
except KeyReused as error:
    print(error)
try:
    reserve("order-2", {"item": "lamp", "count": 8})
except ValueError as error:
    print(error)
print("in stock:", shop.execute("SELECT count FROM stock").fetchone()[0])
shop.close()
