"""The page of one approval. Everything that was stored is escaped, and nothing in it can hide or reverse text."""

from __future__ import annotations

import base64
import hashlib
import html

import msgspec

from ..core.plain import plain
from ..runtime.decisions import ApprovalView
from ..runtime.spans import instant

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: #1d1d1f; }
h1 { font-size: 1.4rem; } dt { color: #6b6b70; } dd { margin: 0 0 .6rem; overflow-wrap: anywhere; }
pre { background: #f4f4f5; padding: 1rem; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
textarea { width: 100%; box-sizing: border-box; font: inherit; }
button { font: inherit; padding: .5rem 1.2rem; margin: .8rem .8rem 0 0; border: 1px solid #6b6b70; background: #fff; }
button.yes { background: #1a7f37; border-color: #1a7f37; color: #fff; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


def _show(text: str) -> str:
    return html.escape(plain(text))


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="robots" content="noindex, nofollow">'
        f"<title>{_show(title)}</title><style>{STYLE}</style></head><body><h1>{_show(title)}</h1>{body}</body></html>"
    )


def notice(title: str, text: str) -> str:
    """A page that only says something."""
    return _page(title, f"<p>{_show(text)}</p>")


def approval(view: ApprovalView, who: str) -> str:
    """What is asked for, whole, and the form while it can be decided."""
    lines = msgspec.json.format(view.artifact, indent=2).decode().split("\n")
    shown = "\n".join(_show(line) for line in lines)
    asks = f"send <b>{_show(view.effect)}</b> with exactly this" if view.effect else "exactly this"
    facts = (
        f"<dt>Run</dt><dd>{_show(view.run)}</dd><dt>Asked of</dt><dd>{_show(view.by)}</dd>"
        f"<dt>Asked at</dt><dd>{instant(view.asked_at)}</dd><dt>Until</dt><dd>{instant(view.until)}</dd>"
        f"<dt>Digest</dt><dd><code>{_show(view.digest)}</code></dd>"
    )
    return _page(
        f"Approval {view.id}", f"<p>To be approved: {asks}.</p><pre>{shown}</pre><dl>{facts}</dl>{_end(view, who)}"
    )


def _end(view: ApprovalView, who: str) -> str:
    decision = view.decision
    if decision is not None and decision.who:
        why = f" {_show(decision.why)}" if decision.why else ""
        return f"<p><b>{_show(decision.who)} has {decision.decision} this</b> at {instant(decision.at)}.{why}</p>"
    if view.status != "pending":
        return f"<p><b>This is {view.status}</b>; it cannot be decided any more.</p>"
    return (
        f'<form method="post"><p>You decide as <b>{_show(who)}</b>. The first decision counts.</p>'
        '<label>Why (needed to deny; it is kept)<textarea name="why" rows="3" maxlength="4000"></textarea></label>'
        '<button class="yes" name="decision" value="approve">Approve</button>'
        '<button name="decision" value="deny">Deny</button></form>'
    )
