"""The journal out of process: a loopback proxy between an agent in any language and the services that it calls.

It goes on reading when the agent dies, so a call that was under way is not lost. What it cannot close is its own death
between a service's act and its record, and a reply that never reaches it.
"""

from __future__ import annotations

from .options import Options, TokenService, Upstream

__all__ = ["Options", "TokenService", "Upstream"]
