"""S3's conditional PutObject: `If-None-Match: *` makes the object's name a key; errors are XML.

Facts: https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html. A PUT without the condition
overwrites; this twin takes it as an operation of its own, and path-style addresses only.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from email.utils import format_datetime
from xml.sax.saxutils import escape

from ..behaviour import SUCCESSES, Behaviour, Said, Sort
from ..messages import Answer, Call, Page, Question, Request, Thing

PUT, OVERWRITE = "put_object", "put_object_over"
META = "x-amz-meta-"

BEHAVIOUR = Behaviour(
    name="aws.s3.conditional_put",
    operations={PUT: Sort.CONDITIONAL, OVERWRITE: Sort.NONE},
    length_max=1100,
    codes={
        Said.MADE: (200, ""),
        Said.EXISTS: (412, "PreconditionFailed"),
        Said.IN_FLIGHT: (409, "ConditionalRequestConflict"),
        Said.NOT_PROCESSED: (503, "SlowDown"),
        Said.REFUSED: (403, "AccessDenied"),
        Said.ERROR: (500, "InternalError"),
        Said.UNKNOWN: (404, "NoSuchKey"),
    },
)


class Wire:
    """The shape of s3.amazonaws.com/{bucket}/{key}."""

    behaviour = BEHAVIOUR

    def read(self, call: Call, behaviour: Behaviour) -> Request | Question | Page:
        """PUT writes, GET and HEAD read one object."""
        name = call.path.strip("/")
        if "/" not in name or call.method not in ("PUT", "GET", "HEAD"):
            return _error(501, "NotImplemented", f"this twin has no {call.method} {call.path}")
        if call.method != "PUT":
            return Question(operation=PUT, value=name)
        if "x-amz-decoded-content-length" in call.headers:
            return _error(501, "NotImplemented", "this twin takes bodies as they are, not in signed chunks")
        marks = {k.removeprefix(META): v for k, v in call.headers.items() if k.startswith(META)}
        only_new = call.headers.get("if-none-match") == "*"
        payload = {"body": call.body.decode("latin-1"), "metadata": marks}
        return Request(operation=PUT if only_new else OVERWRITE, payload=payload, key=name, name=name)

    def write(self, answer: Answer, asked: Request | Question, behaviour: Behaviour) -> Page:
        """An ETag, an object, or an error in XML."""
        if answer.said is Said.SHOWN:
            return _object(answer.found[-1]) if answer.found else _error(404, "NoSuchKey", "The key does not exist.")
        if answer.said in SUCCESSES and answer.thing is not None:
            return Page(status=200, headers={"ETag": _etag(answer.thing)})
        status, code = behaviour.code(answer.said)
        return _error(answer.status or status, "SlowDown" if answer.status == 429 else code, answer.text)


def _error(status: int, code: str, text: str) -> Page:
    xml = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{escape(text)}</Message></Error>'
    return Page(status=status, body=xml.encode(), headers={"Content-Type": "application/xml"})


def _bytes(thing: Thing) -> bytes:
    return str(thing.request.payload["body"]).encode("latin-1")


def _etag(thing: Thing) -> str:
    return f'"{hashlib.md5(_bytes(thing), usedforsecurity=False).hexdigest()}"'


def _object(thing: Thing) -> Page:
    marks = {f"{META}{name}": str(value) for name, value in thing.request.payload["metadata"].items()}
    at = format_datetime(datetime.fromtimestamp(thing.made_at, UTC), usegmt=True)
    return Page(status=200, body=_bytes(thing), headers={"ETag": _etag(thing), "Last-Modified": at, **marks})
