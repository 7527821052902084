"""The receiving side, for services of one's own: the same key gets the same answer, and the work is done once."""

from .answers import Answer
from .call import IdempotentCall, idempotency
from .claims import Inbox
from .endpoint import idempotent
from .errors import InProgress, KeyReused
from .middleware import IdempotencyMiddleware, stores_error
from .once import Once, create_inbox_table, once, purge_inbox
from .problems import Problem
from .request import authorization, exact, same_json
from .rules import Claim

__all__ = [
    "Answer",
    "Claim",
    "IdempotencyMiddleware",
    "IdempotentCall",
    "InProgress",
    "Inbox",
    "KeyReused",
    "Once",
    "Problem",
    "authorization",
    "create_inbox_table",
    "exact",
    "idempotency",
    "idempotent",
    "once",
    "purge_inbox",
    "same_json",
    "stores_error",
]
