"""Which requests are calls of a model, and what of one says what is asked.

The fingerprint leaves out what changes from process to process without changing the answer that is wanted: keys, the
SDK's own headers, who asks (`metadata`, `user`), the boundary of a multipart body.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl

import msgspec

from ..core.journal import PREVIEW_CHARACTERS
from .claude_program import question_of

HEADERS = (
    "anthropic-beta",
    "anthropic-version",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "x-goog-user-project",
)
"""Request headers that change what is asked; no other is part of the fingerprint."""
VOLATILE = ("metadata", "user", "safety_identifier", "prompt_cache_key", "service_tier")
"""Members of a body that name the caller, or how it is billed, and not the question."""
KEYS_IN_QUERY = frozenset({"key", "api-key", "api_key", "access_token"})
HOSTS = (
    "api.openai.com",
    ".openai.azure.com",
    ".cognitiveservices.azure.com",
    ".services.ai.azure.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "aiplatform.googleapis.com",
    "api.mistral.ai",
    "api.groq.com",
    "api.deepseek.com",
    "api.together.xyz",
    "api.x.ai",
    "api.cohere.com",
    "api.fireworks.ai",
    "openrouter.ai",
    ".amazonaws.com",
)
"""Hosts that serve models; `.amazonaws.com` counts for Bedrock's paths alone."""
_PATHS: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    ("openai.chat", re.compile(r"/chat/completions$"), ()),
    ("openai.responses", re.compile(r"/responses(/compact)?$"), ("model", "input")),
    ("anthropic.messages", re.compile(r"/messages$"), ("model", "messages", "max_tokens")),
    ("openai.completions", re.compile(r"/completions$"), ("model", "prompt")),
    ("openai.embeddings", re.compile(r"/embeddings$"), ("model", "input")),
    ("openai.moderations", re.compile(r"/moderations$"), ("input",)),
    ("openai.images", re.compile(r"/images/(generations|edits|variations)$"), ("model",)),
    ("openai.audio", re.compile(r"/audio/(transcriptions|translations|speech)$"), ("model",)),
    ("gemini.generate", re.compile(r":(generateContent|streamGenerateContent)$"), ()),
    ("gemini.embed", re.compile(r":(embedContent|batchEmbedContents|embedContents)$"), ()),
    ("anthropic.vertex", re.compile(r":(rawPredict|streamRawPredict)$"), ()),
    ("bedrock", re.compile(r"/model/[^/]+/(invoke|invoke-with-response-stream|converse|converse-stream)$"), ()),
)
"""(API, what its path ends with, members that a body on an unknown host must have to be one of its calls)."""
_MODEL_IN_PATH = re.compile(r"/models?/([^/:]+)|/deployments/([^/]+)")
_decode = msgspec.json.Decoder().decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Asked(NamedTuple):
    """One call of a model: what tells it from others, and what a person gets to see of it."""

    api: str
    model: str
    fingerprint: bytes
    preview: str
    body: dict[str, Any] | None
    rest: tuple[str, ...]


def api_by_path(path: str) -> str:
    """The API whose calls have such a path, or "": enough where everything that comes is meant for a model."""
    return _by_path(path)[0]


def asked_of(
    method: str,
    url: str,
    host: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    is_endpoint: Callable[[str], bool],
) -> Asked | None:
    """What a request asks of a model, or None if it is something else. `headers` are by name in lower case.

    `is_endpoint` says of an address that it serves a model, whatever its path or host look like.
    """
    if method != "POST":
        return None
    api, members = _by_path(path)
    mine = is_endpoint(url)
    if not api and not mine:
        return None
    content = content_of(headers.get("content-type", ""), body)
    if not mine and not is_known(host, api) and not _has(content, members, body):
        return None
    asked = cast("dict[str, Any]", content) if isinstance(content, dict) else None
    return Asked(
        api=api or "other",
        model=model_of(asked, path),
        fingerprint=fingerprint(method, host, path, query, headers, question_of(content)),
        preview=preview_of(asked),
        body=asked,
        rest=(method, host, path),
    )


@lru_cache(256)
def _by_path(path: str) -> tuple[str, tuple[str, ...]]:
    return next(((api, members) for api, pattern, members in _PATHS if pattern.search(path)), ("", ()))


@lru_cache(256)
def is_known(host: str, api: str) -> bool:
    """True for a host that serves models."""
    if host.endswith(".amazonaws.com"):
        return api == "bedrock"
    return any(host == known.lstrip(".") or host.endswith(known if known[0] == "." else f"-{known}") for known in HOSTS)


def _has(content: Any, members: tuple[str, ...], body: bytes) -> bool:
    if isinstance(content, dict):
        return all(member in content for member in members)
    return all(b'name="%b"' % member.encode() in body for member in members)


def content_of(content_type: str, body: bytes) -> Any:
    """A body as it counts: JSON without its volatile members, the parts of a multipart body, or the bytes."""
    if content_type.startswith("multipart/"):
        parts = _parts_of(content_type, body)
        if parts is not None:
            return parts
    try:
        content = _decode(body)
    except (msgspec.DecodeError, ValueError):
        return body
    if isinstance(content, dict):
        fields = cast("dict[str, Any]", content)
        for name in VOLATILE:
            fields.pop(name, None)
        return fields
    return content


def _parts_of(content_type: str, body: bytes) -> list[list[str]] | None:
    """[head, digest of the content] of each part; None if this is no multipart body."""
    found = re.search(r'boundary="?([^";]+)"?', content_type)
    if found is None:
        return None
    pieces = body.split(b"--" + found[1].encode())
    parts: list[list[str]] = []
    for piece in pieces[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        lines = sorted(line.strip().lower() for line in head.decode("utf-8", "replace").split("\r\n") if line.strip())
        parts.append([*lines, hashlib.blake2b(content.removesuffix(b"\r\n"), digest_size=16).hexdigest()])
    return parts


def fingerprint(method: str, host: str, path: str, query: str, headers: Mapping[str, str], content: Any) -> bytes:
    """16 bytes that say what is asked; `content` is what `content_of` gives."""
    pairs = sorted(
        (name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in KEYS_IN_QUERY
    )
    named = {name: headers[name] for name in HEADERS if name in headers}
    hashed = hashlib.blake2b(
        _encode_sorted([method, host, path, pairs, named]), digest_size=16, person=b"surefoot-http"
    )
    hashed.update(content if isinstance(content, bytes) else _encode_sorted(content))
    return hashed.digest()


def model_of(body: dict[str, Any] | None, path: str) -> str:
    """The model that is asked, from the body or from the path; "model" when neither names one."""
    name = body.get("model") if body is not None else None
    if isinstance(name, str) and name:
        return name
    found = _MODEL_IN_PATH.search(path)
    return (found[1] or found[2]) if found is not None else "model"


def preview_of(body: dict[str, Any] | None) -> str:
    """The end of the conversation, short: what a person recognises the call by."""
    if body is None:
        return ""
    for name in ("messages", "input", "contents", "prompt"):
        if name in body:
            return " ".join(_text_of(body[name]).split())[:PREVIEW_CHARACTERS]
    return ""


def _text_of(value: Any) -> str:
    match value:
        case str():
            return value
        case [*_, last]:
            return _text_of(last)
        case {"text": str(text)} | {"content": str(text)} | {"output": str(text)}:
            return text
        case {"content": inner} | {"parts": inner}:
            return _text_of(inner)
        case {"functionResponse": inner} | {"functionCall": inner} | {"arguments": inner}:
            return _text_of(inner) if isinstance(inner, str) else msgspec.json.encode(inner).decode()
        case _:
            return ""
