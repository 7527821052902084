"""A service as many keep their tokens: one refresh at a time in a process, a record that is written field by field."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from service import die, exchange, serve

STORE = Path(os.environ["STATE"], "token.json")
TRIES = 3
lock = threading.Lock()


def access_token() -> str:
    """A token that has not expired, refreshed if it has."""
    with lock:
        held = json.loads(STORE.read_text())
        for _ in range(TRIES):
            if time.time() < held["expires_at"]:
                break
            asked_at = time.time()
            fresh = exchange(held["refresh_token"])
            held = keep(access_token=fresh["access_token"], expires_at=asked_at + fresh["expires_in"])
            die("between")
            held = keep(refresh_token=fresh["refresh_token"])
        return held["access_token"]


def keep(**fields: Any) -> dict[str, Any]:
    """Read, merge, write: the file is whole at each moment."""
    held = {**json.loads(STORE.read_text()), **fields}
    draft = STORE.with_name(f"{STORE.name}.{os.getpid()}")
    draft.write_text(json.dumps(held))
    draft.replace(STORE)
    return held


if __name__ == "__main__":
    serve(access_token)
