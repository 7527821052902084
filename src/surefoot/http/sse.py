"""Reads a model's answer while it streams, and says what may be given out when.

An answer counts when it is complete, and it has to be on disk before its reader can act on it: whatever the reader does
next depends on it. So what hands over a whole tool call or says "finished" is held back, with all that follows, until
the end has come and is recorded. A stream that ends without its terminal event, or that holds an error, is no answer,
and what was held back of it is never given out.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, cast

import msgspec

from .gemini import CallIds
from .handing import Handing
from .tokens import Tally

_BLANK_LINE = re.compile(rb"\r?\n\r?\n|\r\r")
_ENDS = frozenset({"message_stop", "response.completed", "response.incomplete"})
_ERRORS = frozenset({"error", "response.failed"})
_decode = msgspec.json.Decoder().decode


class Commit:
    """In what a recorder gives out: record the answer before anything that follows is given out."""


COMMIT: Final = Commit()


class Recorder(Protocol):
    """Is fed an answer as it comes; `answer` is complete when COMMIT was given."""

    tally: Tally
    failed: str

    def feed(self, chunk: bytes) -> list[bytes | Commit]:
        """What may be given out now, in order."""
        ...

    def finish(self) -> list[bytes | Commit]:
        """The same when the answer has ended; afterwards `failed` says why it is none."""
        ...

    def answer(self) -> bytes:
        """What is recorded: of a failed attempt, what was given out of it."""
        ...


def split(buffer: bytes) -> tuple[list[bytes], bytes]:
    """(whole events, each with its blank line; the beginning of the next)."""
    found: list[bytes] = []
    start = 0
    for blank in _BLANK_LINE.finditer(buffer):
        found.append(buffer[start : blank.end()])
        start = blank.end()
    return found, buffer[start:]


def data_of(event: bytes) -> bytes:
    """The data lines of an event, joined."""
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines)


class Events:
    """The recorder of server-sent events."""

    def __init__(self, ids: CallIds | None = None) -> None:
        """With `ids`, function calls get names before anybody sees them."""
        self.tally = Tally()
        self.failed = ""
        self._ids = ids
        self._buffer = b""
        self._recorded: list[bytes] = []
        self._held: list[bytes] = []
        self._handing = Handing()
        self._holding = self._closing = self._ended = False
        self._choices: set[Any] = set()
        self._finished: set[Any] = set()

    def feed(self, chunk: bytes) -> list[bytes | Commit]:
        """Events as they become whole; nothing from the one on that lets its reader act, until the end is there."""
        whole, self._buffer = split(self._buffer + chunk)
        out: list[bytes | Commit] = []
        for event in whole:
            self._take(event, out)
        return out

    def finish(self) -> list[bytes | Commit]:
        """An answer that said "finished" and was not cut is one, also without a terminal event of its own."""
        out: list[bytes | Commit] = []
        if self._buffer:
            rest, self._buffer = self._buffer, b""
            self._take(rest, out)
        if not self._ended:
            if self._closing and not self.failed:
                self._end(out)
            else:
                self.failed = self.failed or "the stream ended without its terminal event"
        return out

    def answer(self) -> bytes:
        """What was given out, up to the end."""
        return b"".join(self._recorded)

    def _take(self, event: bytes, out: list[bytes | Commit]) -> None:
        if self._ended:
            out.append(event)
            return
        if self._ids is not None:
            event = self._named(event)
        failed = self.failed
        ends = self._judge(data_of(event))
        self._holding = self._holding or self._closing or ends
        if not self._holding or failed != self.failed:  # an error is told at once
            self._recorded.append(event)
            out.append(event)
            return
        self._held.append(event)
        if ends and not self.failed:
            self._end(out)

    def _end(self, out: list[bytes | Commit]) -> None:
        self._ended = True
        self._recorded += self._held
        out.extend((COMMIT, *self._held))
        self._held = []

    def _named(self, event: bytes) -> bytes:
        data = data_of(event)
        named = self._ids.named(data) if self._ids is not None else data
        return event if named == data else b"data: " + named + b"\n\n"

    def _judge(self, data: bytes) -> bool:
        """True for the terminal event; notes what lets a reader act, errors and tokens."""
        if data.strip() == b"[DONE]":
            return True
        try:
            content = _decode(data)
        except (msgspec.DecodeError, ValueError):
            return False
        if not isinstance(content, dict):
            return False
        event = cast("dict[str, Any]", content)
        self.tally.see(event)
        kind = event.get("type")
        if kind in _ERRORS or (event.get("error") and kind is None):
            self.failed = f"an error in the stream: {data[:200].decode('utf-8', 'replace')}"
            return False
        self._holding = self._holding or self._handing.hands_over(event)
        self._closing = self._closing or self._says_finished(event)
        return kind in _ENDS

    def _says_finished(self, event: dict[str, Any]) -> bool:
        if event.get("type") == "message_delta":
            delta = event.get("delta")
            return isinstance(delta, dict) and bool(cast("dict[str, Any]", delta).get("stop_reason"))
        for name, reason in (("choices", "finish_reason"), ("candidates", "finishReason")):
            for each in _dicts(event.get(name)):
                self._choices.add(each.get("index", 0))
                if each.get(reason):
                    self._finished.add(each.get("index", 0))
        return bool(self._finished) and self._finished >= self._choices


def _dicts(value: Any) -> list[dict[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


class Pieces:
    """The recorder of any other stream, such as sound: it is complete when it ends, so its last piece is held back."""

    def __init__(self) -> None:
        """Nothing came yet."""
        self.tally = Tally()
        self.failed = ""
        self._recorded: list[bytes] = []
        self._held = b""

    def feed(self, chunk: bytes) -> list[bytes | Commit]:
        """The piece before."""
        before, self._held = self._held, chunk
        if not before:
            return []
        self._recorded.append(before)
        return [before]

    def finish(self) -> list[bytes | Commit]:
        """The last one, when all is recorded."""
        self._recorded.append(self._held)
        return [COMMIT, self._held] if self._held else [COMMIT]

    def answer(self) -> bytes:
        """All of it."""
        return b"".join(self._recorded)
