"""Effects that are wanted by the user's own transaction: put with it, delivered after it, at most once per contract.

outbox.put(connection, send_mail, "a@b", body, id="welcome-7")   # commits or rolls back with everything else
outbox.deliver(sf, connect)                                      # anywhere, several at once, again after any crash
"""

from .deliverer import Delivered, deliver, nudge, run
from .putting import put, put_async
from .row import Row, State
from .table import create_outbox_table, drop, failed, find, pending, retry, schema

__all__ = [
    "Delivered",
    "Row",
    "State",
    "create_outbox_table",
    "deliver",
    "drop",
    "failed",
    "find",
    "nudge",
    "pending",
    "put",
    "put_async",
    "retry",
    "run",
    "schema",
]
