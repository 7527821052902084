"""Effects in doubt and what is known of them: what the tests of the policy share."""

from __future__ import annotations

from typing import Any

from surefoot.core.contract import Contract, Kind, lookup, natural, opaque
from surefoot.core.effect import Effect, Evidence, Status
from surefoot.core.policy import Move, Park
from tests.core.support import KEYED, make_effect, make_evidence

LOOKUP = lookup(30.0)
SAME_TRANSACTION = Contract(kind=Kind.SAME_TRANSACTION)
AT_LEAST_ONCE = opaque(at_least_once=True)
REPEATED_FOR_EVER = [SAME_TRANSACTION, natural(), AT_LEAST_ONCE]
EVERY = [SAME_TRANSACTION, KEYED, natural(), LOOKUP, opaque(), AT_LEAST_ONCE]
EPS = 0.001
PROTECTED = 100.0 + 1000.0 * 0.5
SETTLED = 110.0 + 30.0


def doubt(contract: Contract = KEYED, *evidence: Evidence, **fields: Any) -> Effect:
    """In doubt since 105: first sent at 100, deadline 110, budget 300."""
    fields = {"unresolved": 1, "doubted_at": 105.0, "evidence": evidence} | fields
    return make_effect(Status.IN_DOUBT, contract, **fields)


def answered(found: str, at: float = 105.0, attempt: int = 1) -> Evidence:
    return make_evidence("answer", found, at, attempt)


def looked(found: str, at: float, attempt: int = 1, text: str = "") -> Evidence:
    return make_evidence("lookup", found, at, attempt, text=text)


def parked(move: Move, text: str) -> bool:
    return isinstance(move, Park) and text in move.why
