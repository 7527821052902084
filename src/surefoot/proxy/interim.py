"""Interim: fingerprint, stream reader and codec, until they come from the HTTP layer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta", "openai-organization", "openai-project")
VOLATILE = ("metadata", "user", "safety_identifier", "prompt_cache_key", "service_tier")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded answer."""

    status: int
    headers: tuple[tuple[str, str], ...]
    content: bytes
    cut: bool = False


def encode_reply(reply: Reply) -> bytes:
    return msgspec.msgpack.encode(reply)


def decode_reply(content: bytes) -> Reply:
    return msgspec.msgpack.decode(content, type=Reply)


def fingerprint(method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> bytes:
    try:
        said = msgspec.convert(json.loads(body), type=dict[str, Any])
        decoded = {name: value for name, value in said.items() if name not in VOLATILE}
        canonical = json.dumps(decoded, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, msgspec.MsgspecError):
        canonical = body
    kept = [(name, headers[name]) for name in HEADERS if name in headers]
    return hashlib.blake2b(repr((method, path, query, kept)).encode() + canonical, digest_size=8).digest()


ENDS = (b"data: [DONE]", b"event: message_stop", b"event: response.completed", b'"finishReason"')
PATHS = ("/chat/completions", "/responses", "/messages", ":generateContent", ":streamGenerateContent", "/embeddings")


def is_model_call(method: str, path: str) -> bool:
    return method == "POST" and path.endswith(PATHS)


class Terminal:
    """Holds back from the terminal event on."""

    def __init__(self) -> None:
        self._held = b""
        self._line = b""
        self.is_complete = False

    @staticmethod
    def of(status: int, headers: Mapping[str, str]) -> Terminal | None:
        stream = "text/event-stream" in headers.get("content-type", "")
        return Terminal() if status == 200 and stream else None

    def feed(self, piece: bytes) -> bytes:
        if self.is_complete:
            self._held += piece
            return b""
        self._line += piece
        given = b""
        while b"\n\n" in self._line:
            event, _, rest = self._line.partition(b"\n\n")
            if any(end in event for end in ENDS):
                self._held, self._line, self.is_complete = self._line, b"", True
                return given
            given, self._line = given + event + b"\n\n", rest
        return given

    def rest(self) -> bytes:
        return self._held + self._line
