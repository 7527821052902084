"""Which database a URL names, and how it is shown: never with its password.

`postgresql://user:password@host/database?surefoot_schema=name` is what libpq understands, plus the schema, which is
taken out before libpq sees it.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from ...core.errors import StoreRefused

SCHEMES = ("postgresql://", "postgres://")
SCHEMA_PARAMETER = "surefoot_schema"
DEFAULT_SCHEMA = "surefoot"
SECRET_PARAMETERS = ("password", "sslpassword", "oauth_client_secret")
SCHEMA_NAME = re.compile("[a-z_][a-z0-9_]{0,62}")
# A dead network is noticed within about half a minute, by whoever waits for an answer too. A standby is no server yet:
# of several hosts the primary is taken, and after a failover the next one is waited for.
PATIENCE = {
    "application_name": "surefoot",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "target_session_attrs": "read-write",
}
# Whatever PGCLIENTENCODING says: values are sent as they are kept.
SPOKEN = {"client_encoding": "UTF8"}


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A database and a schema in it; `shown` is fit for messages, `secrets` are what no message may hold."""

    conninfo: str
    schema: str
    shown: str
    secrets: tuple[str, ...]

    def scrub(self, message: str) -> str:
        """The message on one line, without any secret."""
        for secret in self.secrets:
            message = message.replace(secret, "***")
        return " ".join(message.split())


def read_url(url: str, schema: str | None = None) -> Address:
    """The address that a URL names; `schema` wins over the URL's. Raises StoreRefused for what cannot be read."""
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise StoreRefused(
            "the PostgreSQL URL cannot be read; expected postgresql://user:password@host:port/database, with "
            "%40 for @, %2F for / and %3A for : inside a name or password"
        ) from None
    named = [value for name, value in given if name == SCHEMA_PARAMETER]
    schema = schema or (named[-1] if named else DEFAULT_SCHEMA)
    if not SCHEMA_NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise StoreRefused(
            f"{schema!r} cannot be a store's schema; expected lower-case letters, digits and _, not beginning with pg_"
        )
    options = {name: value for name, value in given if name != SCHEMA_PARAMETER}
    conninfo = urlunsplit(
        ("postgresql", parts.netloc, parts.path, urlencode({**PATIENCE, **options, **SPOKEN}, safe="/"), "")
    )
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    secrets = {password, unquote(password), *(options.get(name, "") for name in SECRET_PARAMETERS)} - {""}
    shown = f"postgresql://{user + '@' if user else ''}{hosts}{parts.path} (schema {schema})"
    ordered = tuple(sorted(secrets, key=len, reverse=True))
    return Address(conninfo=conninfo, schema=schema, shown=shown, secrets=ordered)
