"""The same service with `surefoot.Credential`: all replicas share its store, and one of them refreshes."""

from __future__ import annotations

import base64
import os
import sys
from typing import Any

from service import die, exchange, serve

from surefoot import Attempt, Credential, Surefoot
from surefoot.credentials import Token, grace, strict


def refresh(attempt: Attempt, refresh_token: str) -> dict[str, Any]:
    """One exchange."""
    return exchange(refresh_token)


if __name__ == "__main__":
    promise: Any = grace(600) if os.environ["PROMISE"] == "grace" else strict()
    with Surefoot(os.path.join(os.environ["STATE"], "credentials.db")):
        credential = Credential(
            "service",
            refresh=refresh,
            receiver=promise,
            key=lambda: base64.b64decode(os.environ["SUREFOOT_SECRET_KEY"]),
        )
        if sys.argv[1:] == ["connect"]:
            expired = Token(refresh_token=os.environ["FIRST"], access_token="", expires_in=0)
            credential.connect(expired)
        else:

            def access_token() -> str:
                """Good, or an exception that says what to do."""
                token = credential.access_token(min_seconds=0.2)
                die("between")
                return token

            serve(access_token)
