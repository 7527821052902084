"""What the middleware itself answers: problem details (RFC 9457), each with a type that never changes."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

from ..core.values import encode_canonical
from .answers import Answer
from .rules import Claim

TYPE_PREFIX = "urn:surefoot:inbox:"


class Problem(StrEnum):
    """The last part of a problem's type. A client may rely on these."""

    KEY_MISSING = "key-missing"
    KEY_MALFORMED = "key-malformed"
    KEY_REUSED = "key-reused"
    IN_PROGRESS = "in-progress"
    OUTCOME_UNKNOWN = "outcome-unknown"
    REQUEST_TOO_LARGE = "request-too-large"
    ANSWER_NOT_STORED = "answer-not-stored"
    STORE_UNAVAILABLE = "store-unavailable"


_STATUS: dict[Problem, tuple[int, str]] = {
    Problem.KEY_MISSING: (400, "Idempotency-Key is missing"),
    Problem.KEY_MALFORMED: (400, "Idempotency-Key is malformed"),
    Problem.KEY_REUSED: (422, "Idempotency-Key was used for another request"),
    Problem.IN_PROGRESS: (409, "A request with this Idempotency-Key is in progress"),
    Problem.OUTCOME_UNKNOWN: (409, "The outcome of the first request with this Idempotency-Key is unknown"),
    Problem.REQUEST_TOO_LARGE: (413, "The request is too large to be protected by an Idempotency-Key"),
    Problem.ANSWER_NOT_STORED: (500, "The request was carried out, but its answer cannot be stored"),
    Problem.STORE_UNAVAILABLE: (503, "The store of Idempotency-Keys cannot be reached"),
}


def problem(kind: Problem, detail: str, *, retry_after: int | None = None, **more: str | float) -> Answer:
    """The answer for a problem; `more` are members beside the standard ones."""
    status, title = _STATUS[kind]
    content = {"type": TYPE_PREFIX + kind, "title": title, "status": status, "detail": detail, **more}
    retry = () if retry_after is None else (("retry-after", str(retry_after)),)
    return Answer(
        status=status,
        headers=(("content-type", "application/problem+json"), ("cache-control", "no-store"), *retry),
        body=encode_canonical(content, "the problem"),
    )


def missing(method: str, path: str) -> Answer:
    """400: the field has to be there."""
    detail = (
        f'{method} {path} requires the field Idempotency-Key: "<a new UUID for each new request>". Nothing was done. '
        "Send the same key, and the same request, again when an answer does not arrive."
    )
    return problem(Problem.KEY_MISSING, detail)


def reused() -> Answer:
    """422: another request under the key."""
    detail = (
        "This key was used with another query or body. Nothing was done for this request: send the first one unchanged "
        "to get its answer, or use a new key."
    )
    return problem(Problem.KEY_REUSED, detail)


def in_progress(retry_after: int) -> Answer:
    """409: the first is still running."""
    detail = (
        "The first request with this key is still being processed. Nothing was done for this one; send it again, with "
        f"the same key, in {retry_after} s to get the answer of the first."
    )
    return problem(Problem.IN_PROGRESS, detail, retry_after=retry_after)


def outcome_unknown(claim: Claim, why: str) -> Answer:
    """409: nobody knows whether the first happened, and a repeat could do it twice."""
    detail = (
        f"{why} Whether it took effect is unknown, and doing it again could do it twice, so nothing was done for this "
        "request. An operator of this service looks and settles it (inbox.resolve in its documentation); send the "
        "request again, with the same key, after that."
    )
    return problem(Problem.OUTCOME_UNKNOWN, detail, attempts=claim.attempts, began_at=round(claim.began_at, 3))


def too_large(limit: int) -> Answer:
    """413: the body is over the limit."""
    return problem(Problem.REQUEST_TOO_LARGE, f"The body has more than {limit} bytes. Nothing was done.")


def not_stored(status: int, why: str) -> Answer:
    """500: it happened, and this is what every repeat gets."""
    name = HTTPStatus(status).phrase if status in list(HTTPStatus) else ""
    detail = (
        f"The request was carried out once and answered {status} {name}".rstrip() + f", but {why}. It will not be "
        "carried out again: every request with this key gets this answer. Read what it made by another request."
    )
    return problem(Problem.ANSWER_NOT_STORED, detail, answered=status)


def unavailable() -> Answer:
    """503: no claim, so nothing was run."""
    detail = "Nothing was done for this request; send it again, with the same key."
    return problem(Problem.STORE_UNAVAILABLE, detail, retry_after=1)


def unrecorded() -> Answer:
    """503: it ran, and its answer is not on disk yet."""
    detail = (
        "The request was carried out, but its answer could not be recorded yet. Send it again, with the same key, to "
        "get the answer; it will not be carried out a second time."
    )
    return problem(Problem.STORE_UNAVAILABLE, detail, retry_after=1)
