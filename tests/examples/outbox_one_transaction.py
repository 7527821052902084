"""A mail goes out exactly if the order commits, and a database restored from backup sends nothing twice."""

import sqlite3

from surefoot import Attempt, Surefoot, effect, keyed, outbox


def connect() -> sqlite3.Connection:
    return sqlite3.connect("shop.db")


outgoing: dict[str, str] = {}  # the mail service: it keeps our key, and performs it once


@effect(keyed(window=86400))
def send_mail(attempt: Attempt, to: str, body: str) -> dict[str, str]:
    known = attempt.key in outgoing
    outgoing[attempt.key] = f"{to}: {body}"
    print("the mail service", "knows this key" if known else f"sends to {to}")
    return {"to": to}


shop = connect()
shop.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")
outbox.create_outbox_table(shop)

for order, pays in (("A-1", True), ("A-2", False)):
    try:
        with shop:  # one transaction
            shop.execute("INSERT INTO orders VALUES (?)", (order,))
            outbox.put(shop, send_mail, "ada@example.org", f"thanks for {order}", id=f"thanks-{order}")
            if not pays:
                raise ValueError("the card was declined")
    except ValueError as error:
        print(f"{order} rolled back: {error}")

with Surefoot("agents.db") as sf:
    print(outbox.deliver(sf, connect))
    # the user's database comes back from a backup that was taken before the delivery
    shop.execute("UPDATE surefoot_outbox SET state = 'waiting', ended_at = NULL, receipt = NULL, effect_key = ''")
    shop.commit()
    print("after the restore:", outbox.deliver(sf, connect))
row = outbox.find(shop, "thanks-A-1")
assert row is not None
print(row.state, row.receipt, "mails sent:", len(outgoing))
