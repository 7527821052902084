"""Digests: of arguments, of records, and the chain that makes a changed byte visible.

BLAKE2b with a person string per use, so that a digest of one kind never stands for another.
"""

from __future__ import annotations

import hashlib

import msgspec

DIGEST_BYTES = 16
BLOB_MARK = b"\x00"

_canonical = msgspec.json.Encoder(order="sorted")
_blake2b = hashlib.blake2b


def digest(content: bytes) -> bytes:
    """16 bytes over canonical JSON: of arguments, requests."""
    return _blake2b(content, digest_size=DIGEST_BYTES, person=b"surefoot-args").digest()


def record_digest(fields: tuple[object, ...]) -> bytes:
    """16 bytes over one stored record: what its row must hash to when it is read."""
    return _blake2b(_canonical.encode(fields), digest_size=DIGEST_BYTES, person=b"surefoot-record").digest()


def chain_seed(run_id: str) -> bytes:
    """The link before a run's first entry, so that two runs' entries cannot be swapped."""
    return _blake2b(run_id.encode(), digest_size=DIGEST_BYTES, person=b"surefoot-seed").digest()


def chain_link(previous: bytes, head: str, args_digest: bytes, value: bytes) -> bytes:
    """The digest of one entry: over the link before it and all that the entry says."""
    link = _blake2b(previous, digest_size=DIGEST_BYTES, person=b"surefoot-chain")
    link.update(head.encode())
    link.update(args_digest)
    link.update(value)
    return link.digest()


def blob_hash(content: bytes) -> bytes:
    """32 bytes that name a large value."""
    return _blake2b(content, digest_size=32, person=b"surefoot-blob").digest()
