"""Digests: of arguments, of records, and the chain that makes a changed byte visible.

BLAKE2b with a person string per use, so that a digest of one kind never stands for another.
"""

from __future__ import annotations

try:  # `hashlib` would load OpenSSL, too
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

DIGEST_BYTES = 16
LINK_BYTES = 12
SHORT_BYTES = 8
BLOB_MARK = b"\x00"

# to copy one that is set up is cheaper than to set one up
_args = blake2b(digest_size=DIGEST_BYTES, person=b"surefoot-args")
_short = blake2b(digest_size=SHORT_BYTES, person=b"surefoot-args")
_chain = blake2b(digest_size=LINK_BYTES, person=b"surefoot-chain")


def digest(content: bytes) -> bytes:
    """16 bytes over canonical JSON: of arguments, requests."""
    state = _args.copy()
    state.update(content)
    return state.digest()


def short_digest(content: bytes) -> bytes:
    """8 bytes over canonical JSON: what an entry keeps of its arguments, to notice that they changed."""
    state = _short.copy()
    state.update(content)
    return state.digest()


def chain_seed(run_id: str) -> bytes:
    """The link before a run's first entry, so that two runs' entries cannot be swapped."""
    return blake2b(run_id.encode(), digest_size=LINK_BYTES, person=b"surefoot-seed").digest()


def chain_link(previous: bytes, head: str, args_digest: bytes, value: bytes) -> bytes:
    """The digest of one entry: over the link before it and all that the entry says."""
    state = _chain.copy()
    state.update(b"%b%b%c%b%b" % (previous, head.encode(), len(args_digest), args_digest, value))
    return state.digest()


def blob_hash(content: bytes) -> bytes:
    """32 bytes that name a large value."""
    return blake2b(content, digest_size=32, person=b"surefoot-blob").digest()
