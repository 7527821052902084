"""What the agent's Bash runs: one operation at the shop, plainly, or with PRESS_ONCE_DB as an effect with a name."""

import json
import os
import sys
import urllib.request


def press(op: str, key: str = "") -> str:
    headers = {"content-type": "application/json", **({"idempotency-key": key} if key else {})}
    request = urllib.request.Request(f"{os.environ['SHOP']}/do/{op}", json.dumps({"op": op}).encode(), headers)
    return json.loads(urllib.request.urlopen(request, timeout=60).read())["receipt"]


def press_once(db: str, op: str) -> str:
    from surefoot import Surefoot, effect, keyed

    @effect(keyed(24 * 3600), identity="order-81:{op}")
    def shop(attempt, op: str) -> str:
        return press(op, attempt.key)

    with Surefoot(db):
        return shop(op)


if __name__ == "__main__":
    db = os.environ.get("PRESS_ONCE_DB", "")
    print(press_once(db, sys.argv[1]) if db else press(sys.argv[1]))
