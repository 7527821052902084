"""An agent that refunds what its model proposed: `AMOUNT`; `sys.argv[1]` says what its key is made of."""

from __future__ import annotations

import os
import sys

from desk import TICKET, refund

AMOUNT = int(os.environ["AMOUNT"])
KEYS = {"arguments": f"refund:{TICKET}:{AMOUNT}", "ticket": f"refund:{TICKET}"}

if __name__ == "__main__":
    refund(AMOUNT, {"Idempotency-Key": KEYS[sys.argv[1]]})
    print(f"SAID {AMOUNT}")
