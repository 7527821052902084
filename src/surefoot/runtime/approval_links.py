"""Links that let one person decide one approval, in a browser, without an account.

A link is a capability: whoever has it may decide as the person whom it names. So it is signed over all that it says
(which approval of which run, exactly which digest, who decides, until when), it expires no later than its approval, and
looking at it decides nothing: mail scanners and link previews fetch every link that they see.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import timedelta
from typing import TYPE_CHECKING, cast

import msgspec

from ..core.errors import ApprovalClosed, SurefootError, UsageError
from ..core.ids import check_id
from .decisions import ApprovalView, decide, find
from .spans import instant, optional_span

if TYPE_CHECKING:
    from .engine import Engine

SECRET_BYTES_MIN = 16
TOKEN_CHARACTERS_MAX = 6000
_PURPOSE = b"surefoot-approval-link-v1\0"


class LinkRefused(SurefootError):
    """The link is not one of ours, was changed, or has expired; nothing was written."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What a link says."""

    id: str
    run: str
    digest: str
    who: str
    until: float


def check_secret(secret: str | bytes) -> bytes:
    """The secret as bytes; UsageError for one that could be guessed."""
    given = cast("object", secret)
    if not isinstance(given, str | bytes):  # bytes(32) would be 32 zeros, which everybody can guess
        raise UsageError(
            f"the secret of approval links must be str or bytes, found {type(given).__name__}; an environment variable "
            "that is not set reads as None"
        )
    content = given.encode() if isinstance(given, str) else given
    if len(content) < SECRET_BYTES_MIN:
        raise UsageError(
            f"the secret of approval links has {len(content)} bytes, {SECRET_BYTES_MIN} at least; make one with "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` and keep it where your other secrets are"
        )
    return content


def make_link(
    engine: Engine,
    approval_id: str,
    base_url: str,
    secret: str | bytes,
    *,
    who: str | None = None,
    within: timedelta | float | None = None,
) -> str:
    """See `Surefoot.approval_link`."""
    key = check_secret(secret)
    is_base = isinstance(cast("object", base_url), str) and base_url.startswith(("https://", "http://"))
    if not is_base or "?" in base_url or "#" in base_url:
        raise UsageError(
            f"base_url is where the approval page is served, such as https://ops.example/approvals; found {base_url!r}"
        )
    seconds = optional_span(within, "approval_link(within=)")
    view = find(engine, approval_id)
    if view.status != "pending":
        raise ApprovalClosed(view.id, f"it is {view.status}, so a link to it could decide nothing")
    until = view.until if seconds is None else min(view.until, engine.time() + seconds)
    name = view.by if who is None else check_id(who, "who")
    link = Link(id=view.id, run=view.run, digest=view.digest, who=name, until=until)
    return f"{base_url.rstrip('/')}/{sign(link, key)}"


def sign(link: Link, key: bytes) -> str:
    """The link as one word of a URL."""
    content = msgspec.json.encode(link)
    return f"{_as_text(content)}.{_as_text(_mac(content, key))}"


def read_link(engine: Engine, token: str, key: bytes) -> Link:
    """What the link says; LinkRefused unless it was signed with this secret and is still good."""
    body, _, mac = token[:TOKEN_CHARACTERS_MAX].partition(".")
    try:
        content, given = _as_bytes(body), _as_bytes(mac)
    except (ValueError, binascii.Error):
        raise LinkRefused("this link is incomplete or was changed") from None
    if not hmac.compare_digest(_mac(content, key), given):
        raise LinkRefused("this link is incomplete or was changed")
    try:
        link = msgspec.json.decode(content, type=Link)
    except msgspec.MsgspecError:
        raise LinkRefused("this link is of another version") from None
    if engine.time() >= link.until:
        raise LinkRefused(f"this link expired at {instant(link.until)}")
    return link


def look_at(engine: Engine, link: Link) -> ApprovalView:
    """What the link is about, as it stands now; nothing is decided. ApprovalClosed when something else is asked for."""
    view = find(engine, link.id, link.run)
    if view.digest != link.digest:
        raise ApprovalClosed(view.id, "something else is asked for now than this link was made for")
    return view


def decide_by(engine: Engine, link: Link, *, approved: bool, why: str) -> ApprovalView:
    """Decide as the person whom the link names, about exactly what it names."""
    return decide(engine, link.id, approved=approved, who=link.who, why=why, digest=link.digest, run_id=link.run)


def _mac(content: bytes, key: bytes) -> bytes:
    return hmac.new(key, _PURPOSE + content, hashlib.sha256).digest()


def _as_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _as_bytes(text: str) -> bytes:
    content = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _as_text(content) != text:
        raise ValueError("not the one way to write it")
    return content
