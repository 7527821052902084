"""Tokens that are used up when they are refreshed: one refresher, and the new token is on disk before it is used."""

from .contract import TokenContract, family_revocation, grace, reusable, rotating_reusable, strict
from .credential import Credential
from .errors import CredentialError, NeedsReconnect, NotRefreshed, WrongKey
from .sealing import keys_from_environment
from .standing import CredentialView
from .token import Token

__all__ = [
    "Credential",
    "CredentialError",
    "CredentialView",
    "NeedsReconnect",
    "NotRefreshed",
    "Token",
    "TokenContract",
    "WrongKey",
    "family_revocation",
    "grace",
    "keys_from_environment",
    "reusable",
    "rotating_reusable",
    "strict",
]
