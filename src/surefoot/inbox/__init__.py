"""The receiving side, for services of one's own: the same key gets the same answer, and the work is done once."""

from .errors import InProgress, KeyReused
from .once import Once, create_inbox_table, once, purge_inbox

__all__ = ["InProgress", "KeyReused", "Once", "create_inbox_table", "once", "purge_inbox"]
