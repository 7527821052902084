"""A twin that stands alone: `python -m surefoot.testing.twins stripe.v1 ledger.jsonl` prints its URL and serves.

It ends when standard input closes. Its clock, faults and ledger are reached over `/-/`; see `server.py`.
"""

from __future__ import annotations

import sys

from ...core.errors import UsageError
from ...receivers import get
from .twin import Twin


def main(arguments: list[str]) -> int:
    """Serve one receiver until standard input closes; 2 for arguments that say no receiver."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write("usage: python -m surefoot.testing.twins RECEIVER [LEDGER]\n")
        return 2
    try:
        receiver = get(arguments[0])
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    with Twin.of(receiver, arguments[1] if len(arguments) == 2 else None) as twin:
        sys.stdout.write(f"{twin.url}\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
