"""Pages that a program can serve: plain ASGI, no framework, no asset from elsewhere, and no rules of their own."""

from __future__ import annotations

from .approval_app import approval_app

__all__ = ["approval_app"]
