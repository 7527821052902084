"""Secrets are encrypted before they reach the store: AES-256-GCM, bound to the one place where they belong.

The associated data names the credential, its family and its generation, so a box that is copied to another place does
not open. A key's id is derived from the key itself, so that old and new keys can be told apart without a register.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from ..core.errors import UsageError
from ..runtime.clock import random_uuid, variable
from .errors import CredentialError, WrongKey

KEY_VARIABLE = "SUREFOOT_SECRET_KEY"
KEY_BYTES, NONCE_BYTES = 32, 12
MAKE_ONE = "python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"
KeySource = Callable[[], bytes | Sequence[bytes]]


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """An encrypted value and the id of its key: all that a store ever sees."""

    key_id: str
    box: bytes


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a secret belongs. Its JSON is authenticated with the ciphertext, so it never changes."""

    namespace: str
    credential: str
    family: int
    generation: int

    def bound(self, key_id: str) -> bytes:
        """The associated data."""
        return msgspec.json.encode(["surefoot-credential-v1", self, key_id])

    def __str__(self) -> str:
        """For messages."""
        return f"generation {self.generation} of family {self.family} of credential {self.credential!r}"


def keys_from_environment() -> list[bytes]:
    """The keys in SUREFOOT_SECRET_KEY: base64 of 32 bytes each, the newest first, separated by commas."""
    texts = [text.strip() for text in (variable(KEY_VARIABLE) or "").split(",") if text.strip()]
    keys: list[bytes] = []
    for number, text in enumerate(texts, 1):
        try:
            keys.append(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            raise WrongKey(f"key {number} in {KEY_VARIABLE} is not base64; make one with: {MAKE_ONE}") from None
    return keys


def key_id_of(key: bytes) -> str:
    """Eight hex digits that name a key and tell nothing else about it."""
    return hashlib.blake2b(key, digest_size=4, person=b"surefoot-key-id").hexdigest()


class Keys:
    """The keys at hand: the first one seals, all of them open. Asked for anew each time, so that they may change."""

    def __init__(self, source: KeySource) -> None:
        """Raises UsageError where `cryptography` is not installed."""
        try:
            import cryptography.hazmat.primitives.ciphers.aead as _  # noqa: F401
        except ImportError:
            raise UsageError(
                "a credential encrypts its tokens and needs the package cryptography: pip install 'surefoot[crypto]'"
            ) from None
        self._source = source

    def at_hand(self) -> dict[str, bytes]:
        """Keys by id, the sealing one first; WrongKey if there is none, or one has another length."""
        given, failed = b"", ""
        try:
            given = self._source()
        except CredentialError:
            raise
        except Exception as error:
            failed = type(error).__name__
        keys = [bytes(given)] if isinstance(given, bytes | bytearray) else list(given)
        if failed:  # raised here, so that no text of the callback's is carried along
            raise WrongKey(f"the callback key= raised {failed}, so that there is no secret key; nothing was sent")
        if not keys:
            raise WrongKey(
                f"the tokens of a credential are encrypted, and there is no key: set {KEY_VARIABLE}, or pass "
                f"key=lambda: ... with {KEY_BYTES} bytes; make one with: {MAKE_ONE}"
            )
        for number, key in enumerate(keys, 1):
            if not isinstance(cast("Any", key), bytes) or len(key) != KEY_BYTES:
                found = f"{len(key)} bytes" if isinstance(cast("Any", key), bytes) else type(key).__name__
                raise WrongKey(
                    f"secret key {number} must be {KEY_BYTES} bytes, found {found}; make one with: {MAKE_ONE}"
                )
        return {key_id_of(key): key for key in keys}

    def sealer(self) -> Callable[[bytes, Place], Sealed]:
        """What encrypts under the first key, bound to a place; it needs nothing any more that could fail."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key_id, key = next(iter(self.at_hand().items()))
        cipher = AESGCM(key)

        def seal(content: bytes, place: Place) -> Sealed:
            # 122 random bits of a UUID, hashed to the length that GCM is made for
            nonce = hashlib.blake2b(random_uuid().bytes, digest_size=NONCE_BYTES).digest()
            return Sealed(key_id=key_id, box=nonce + cipher.encrypt(nonce, content, place.bound(key_id)))

        return seal

    def open(self, sealed: Sealed, place: Place) -> bytes:
        """Decrypt; WrongKey if its key is not at hand, or if the bytes or their place were changed."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        keys = self.at_hand()
        key = keys.get(sealed.key_id)
        if key is None:
            raise WrongKey(
                f"{place} is encrypted with key {sealed.key_id}, and at hand: {', '.join(keys)}. Put the old key "
                f"behind the new one in {KEY_VARIABLE} (separated by a comma), or return both from key=, newest first"
            )
        try:
            return AESGCM(key).decrypt(sealed.box[:NONCE_BYTES], sealed.box[NONCE_BYTES:], place.bound(sealed.key_id))
        except (InvalidTag, ValueError):
            raise WrongKey(
                f"{place} does not open with its key {sealed.key_id}: its bytes were changed, or it was copied from "
                "another place; restore the store from a copy, or call reconnect(Token(...))"
            ) from None
