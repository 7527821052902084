"""An agent that asks a model and charges, in as many ways as there are verdicts. MODE says which; state is in `state/`.

`sound` is what it should be: a key that a restart cannot change, and a note of what is done that is on disk before the
next request. Each other mode breaks one thing.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

MODE = os.environ.get("MODE", "sound")
STATE = Path("state")
MODEL, SHOP = os.environ["OPENAI_BASE_URL"], os.environ["SHOP_URL"]


def post(url, body, **headers):
    content = {"Content-Type": "application/json", "Authorization": "Bearer any", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), content)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def remember(name, value):
    beside = STATE / f"{name}.{os.getpid()}"
    with beside.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(STATE / name)


def recall(name):
    path = STATE / name
    return json.loads(path.read_text()) if path.exists() else None


def ask():
    message = {"role": "user", "content": "pay order 81"}
    return post(f"{MODEL}/chat/completions", {"model": "any", "messages": [message]})["choices"][0]["message"]


def charge(life):
    cents = 1999 + (life - 1 if MODE == "wrong_amount" else 0)
    headers = {} if MODE in ("duplicates", "no_state") else {"Idempotency-Key": "order-81"}
    return post(f"{SHOP}/charges", {"order": "81", "cents": cents}, **headers)


def main():
    STATE.mkdir(exist_ok=True)
    life = (recall("lives") or 0) + 1
    remember("lives", life)
    if MODE == "strands" and recall("status") == "running":
        print("somebody else works on it")
        return 0
    if MODE == "hangs" and recall("status") == "running":
        time.sleep(600)
    if MODE == "gives_up" and life > 1:
        raise SystemExit("there is a lock file; remove it by hand")
    remember("status", "running")
    if MODE == "loses":
        if recall("charged") is None:
            remember("charged", True)
            ask()
            charge(life)
    elif MODE == "no_state" or recall("charged") is None:
        ask()
        if MODE == "escapes":
            program = "import os, time; time.sleep(1.5); open(os.environ['LATE'], 'w').close()"
            subprocess.Popen([sys.executable, "-c", program], start_new_session=True, env={**os.environ})
        charge(life)
        if MODE != "no_state":
            remember("charged", True)
    remember("status", "done")
    print("order 81 is paid" if MODE != "wrong_answer" or life == 1 else "order 81 is not paid")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except urllib.error.HTTPError as error:
        sys.exit(f"refused: {error.code} {error.read()[:200]!r}")
    except OSError as error:
        sys.exit(f"no answer: {error}")
