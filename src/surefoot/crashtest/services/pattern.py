"""`POST /orders/{order}` and `charge {body.order}`: which requests are meant, and how things are named. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, cast
from urllib.parse import parse_qsl

from ...testing.twins.messages import Call
from ..errors import CrashtestError

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "*")
CHANGING = ("POST", "PUT", "PATCH", "DELETE")


class Pattern:
    """A method and a path with `{name}` for a part of it; `{name...}` takes the rest."""

    def __init__(self, text: str, where: str) -> None:
        """Raises CrashtestError for what is no pattern."""
        method, _, path = text.partition(" ")
        if method not in METHODS or not path.startswith("/"):
            raise CrashtestError(f"{where}: expected a method and a path, such as 'POST /charges'; found {text!r}")
        self.method, self.text = method, text
        parts = re.split(r"(\{\w+(?:\.\.\.)?\})", path.partition("?")[0])
        self._path = re.compile("".join(_part(part) for part in parts) + "/?")

    def match(self, call: Call) -> dict[str, str] | None:
        """The named parts of the path, or None."""
        if self.method not in ("*", call.method):
            return None
        found = self._path.fullmatch(call.path)
        return None if found is None else found.groupdict()


def _part(part: str) -> str:
    if not part.startswith("{"):
        return re.escape(part)
    name = part[1:-1]
    return f"(?P<{name[:-3]}>.+)" if name.endswith("...") else f"(?P<{name}>[^/]+)"


def content_of(call: Call) -> Any:
    """The body as JSON, or as the fields of a form; {} for what is neither."""
    try:
        return json.loads(call.body or b"{}")
    except ValueError:
        text = call.body.decode("utf-8", "replace")
        return dict(parse_qsl(text)) if "=" in text else {}


class Values:
    """What a template may name in one request."""

    def __init__(self, call: Call, path: dict[str, str], **more: Any) -> None:
        """`more` are names of their own, such as n."""
        self._held: dict[str, Any] = {
            "body": content_of(call),
            "path": path,
            "query": call.query,
            "header": call.headers,
            **more,
        }

    def get(self, name: str) -> Any:
        """The value under a dotted name; None when there is none."""
        held: Any = self._held
        for part in name.split("."):
            if isinstance(held, dict):
                held = cast("dict[str, Any]", held).get(part)
            elif isinstance(held, list) and part.isdigit():
                items = cast("list[Any]", held)
                held = items[int(part)] if int(part) < len(items) else None
            else:
                return None
        return held

    def fill(self, template: Any) -> Any:
        """A JSON value whose strings are filled in; a string that is one placeholder keeps the value's type."""
        if isinstance(template, str):
            whole = re.fullmatch(r"\{([\w.-]+)\}", template)
            if whole and self.get(whole[1]) is not None:
                return self.get(whole[1])
            return re.sub(r"\{([\w.-]+)\}", lambda found: self._text(found[1], found[0]), template)
        if isinstance(template, dict):
            return {name: self.fill(value) for name, value in cast("dict[str, Any]", template).items()}
        if isinstance(template, list):
            return [self.fill(value) for value in cast("list[Any]", template)]
        return template

    def _text(self, name: str, otherwise: str) -> str:
        value = self.get(name)
        if value is None:
            return "" if name.split(".")[0] in self._held else otherwise
        return value if isinstance(value, str) else json.dumps(value)

    def key(self, where: str | None) -> str:
        """The idempotency key: in a header of that name, or in a field (`body.x`, `query.x`)."""
        if where is None:
            return ""
        dotted = where.startswith(("body.", "query.", "path."))
        value = self.get(where) if dotted else self.get("header").get(where.lower())
        return "" if value is None else str(value)
