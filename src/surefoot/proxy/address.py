"""Where a request says that it belongs: in headers, or in front of the path, for clients that can set only a base URL.

`/run/nightly/attempt/7f/scope/planner/openai/v1/responses` is run `nightly`, attempt `7f`, scope `planner`, service
`openai`, and `/v1/responses` there. A header says more about one request than a base URL, so it wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ..core.ids import check_id, check_name

HEADER_OF = {
    "run": "x-surefoot-run",
    "attempt": "x-surefoot-attempt",
    "scope": "x-surefoot-scope",
    "key": "x-surefoot-key",
}
"""What may stand in front of the path, and the header that says the same. None of them is sent on."""


@dataclass(frozen=True, kw_only=True)
class Address:
    """A request's place. `rest` is the path at the service, byte for byte as it came; "" where nothing was said."""

    run: str = ""
    attempt: str = ""
    scope: str = ""
    key: str = ""
    service: str = ""
    rest: str = ""


def read_address(raw_path: str, headers: Mapping[str, str]) -> Address:
    """The address of a request; UsageError for a run, attempt or scope that no journal could hold."""
    said: dict[str, str] = {}
    rest = raw_path
    while True:
        word, value, after = _pair(rest)
        if word not in HEADER_OF or not value:
            break
        said[word] = unquote(value)
        rest = after
    for word, header in HEADER_OF.items():
        if headers.get(header):
            said[word] = headers[header]
    service, _, path = rest.removeprefix("/").partition("/")
    checked = Address(service=unquote(service), rest=f"/{path}" if path or rest.endswith("/") else "", **said)
    if checked.run:
        check_id(checked.run, "a run's id")
    if checked.attempt:
        check_id(checked.attempt, "an attempt")
    for part in filter(None, checked.scope.split("/")):
        check_name(part, "a part of a scope")
    return checked


def _pair(path: str) -> tuple[str, str, str]:
    word, _, rest = path.removeprefix("/").partition("/")
    value, slash, after = rest.partition("/")
    return word, value, slash + after


def prefix(*, key: str = "", run: str = "", attempt: str = "", scope: str = "") -> str:
    """The front of a base URL's path that says this."""
    said = {"key": key, "run": run, "attempt": attempt, "scope": scope}
    return "".join(f"/{word}/{quote(value, safe='')}" for word, value in said.items() if value)


def is_word(name: str) -> bool:
    """True for what cannot be a service's name, since it means something in front of a path."""
    return name in HEADER_OF
