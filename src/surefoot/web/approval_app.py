"""The page behind an approval link: GET shows and never decides, POST with the signed link decides.

Whatever is wrong with a link is answered before the store is written to. The page needs no script, loads nothing, may
not be framed, is not indexed, and tells nobody where it was opened from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from ..core.errors import ApprovalClosed, ApprovalNotFound, StoreError, SurefootError, UsageError
from ..runtime import approval_links as links
from . import approval_page as page

if TYPE_CHECKING:
    from ..runtime.app import Surefoot

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
BODY_BYTES_MAX = 64 << 10
FORM = "application/x-www-form-urlencoded"
HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", page.POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"x-robots-tag", b"noindex, nofollow"),
    (b"referrer-policy", b"no-referrer"),
)


class Response(Exception):
    """An answer that ends the handling of a request."""

    def __init__(self, status: int, body: str) -> None:
        """`body` is HTML."""
        super().__init__(status)
        self.status, self.body = status, body


def approval_app(sf: Surefoot, secret: str | bytes) -> App:
    """An ASGI application that serves the links of `sf.approval_link(..., secret)`.

    Mount it where `base_url` points to. 403: a link that is wrong, changed or expired; 404: no such approval; 409: it
    cannot be decided any more; 503: the store could not answer, nothing was decided. Raises UsageError for a secret
    that is too short.
    """
    key = links.check_secret(secret)

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            try:
                response = await _answer(sf, key, scope, receive)
            except Response as ended:
                response = ended
            await _send(scope, send, response)
        else:
            raise UsageError(f"the approval page speaks HTTP; found a {scope['type']} connection")

    return app


async def _live(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(sf: Surefoot, key: bytes, scope: Message, receive: Receive) -> Response:
    import asyncio

    method, token = scope["method"], scope["path"].rpartition("/")[2]
    if method not in ("GET", "HEAD", "POST"):
        raise Response(405, page.notice("Method not allowed", "Open the link in a browser, or POST its form."))
    form = await _form(scope, receive) if method == "POST" else {}
    return await asyncio.to_thread(_look_or_decide, sf, key, token, form)


def _look_or_decide(sf: Surefoot, key: bytes, token: str, form: dict[str, list[str]]) -> Response:
    """Blocking: reads the store, and writes only for a form behind a good link."""
    try:
        link = links.read_link(sf.engine, token, key)
        view = links.look_at(sf.engine, link)
        if not form:
            return Response(200, page.approval(view, link.who))
        approved = _decision_in(form)
        why = form.get("why", [""])[0]
        return Response(200, page.approval(links.decide_by(sf.engine, link, approved=approved, why=why), link.who))
    except links.LinkRefused as refused:
        return Response(403, page.notice("This link does not work", str(refused)))
    except ApprovalNotFound as missing:
        return Response(404, page.notice("No such approval", str(missing)))
    except ApprovalClosed as closed:
        return Response(409, page.notice("Nothing was changed", closed.why))
    except UsageError as wrong:
        return Response(400, page.notice("Nothing was decided", str(wrong)))
    except StoreError as failed:
        return Response(503, page.notice("Try again later", f"the decision may not be stored: {failed}"))
    except SurefootError as failed:
        return Response(500, page.notice("Nothing was decided", str(failed)))


def _decision_in(form: dict[str, list[str]]) -> bool:
    said = form.get("decision", [])
    if said not in (["approve"], ["deny"]):
        raise UsageError("the form has one field decision, which is approve or deny")
    return said == ["approve"]


async def _form(scope: Message, receive: Receive) -> dict[str, list[str]]:
    kinds = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"content-type"]
    if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != FORM:
        raise Response(415, page.notice("Nothing was decided", f"POST the page's form ({FORM})."))
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Response(400, page.notice("Nothing was decided", "The request ended before its form did."))
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_BYTES_MAX:
            raise Response(413, page.notice("Nothing was decided", f"The form takes {BODY_BYTES_MAX:,} bytes at most."))
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=8, errors="strict")
    except ValueError:
        raise Response(400, page.notice("Nothing was decided", "The form cannot be read.")) from None
    return fields or {"decision": []}


async def _send(scope: Message, send: Send, response: Response) -> None:
    body = response.body.encode()
    headers = [*HEADERS, (b"content-length", str(len(body)).encode())]
    if response.status == 405:
        headers.append((b"allow", b"GET, HEAD, POST"))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
