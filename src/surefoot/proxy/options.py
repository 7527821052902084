"""What a proxy is told before it starts: the services it stands before, where it listens, and who may use it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ..core.errors import UsageError
from ..core.ids import check_id, check_name
from ..credentials.contract import TokenContract, token_contract
from .address import is_word

DEFAULT_PORT = 7878
KEY_CHARACTERS_MIN = 16


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """A service under a name: `base` is where its paths begin. Agents find the proxy by `variables`."""

    name: str
    base: str
    variables: tuple[tuple[str, str], ...] = ()
    """(environment variable, the path behind the service's name that clients expect in it)."""


@dataclass(frozen=True, kw_only=True)
class TokenService:
    """An OAuth token endpoint under a name, and what it promises about refresh tokens."""

    name: str
    url: str
    contract: TokenContract


KNOWN = (
    Upstream(
        name="openai",
        base="https://api.openai.com",
        variables=(("OPENAI_BASE_URL", "/v1"), ("OPENAI_API_BASE", "/v1")),
    ),
    Upstream(name="anthropic", base="https://api.anthropic.com", variables=(("ANTHROPIC_BASE_URL", ""),)),
    Upstream(
        name="gemini",
        base="https://generativelanguage.googleapis.com",
        variables=(("GOOGLE_GEMINI_BASE_URL", ""), ("GEMINI_API_BASE", "")),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """A checked configuration. `key` is what every request must bring; "" only on loopback.

    `run` is the run of requests that name none. `skips` lets an agent leave recorded calls unread, since it resumes
    from a checkpoint of its own. `patience_seconds`: how long a call that is not recorded waits for its siblings to
    read theirs. `upstream_seconds`: the longest silence of a service.
    """

    upstreams: tuple[Upstream, ...] = KNOWN
    tokens: tuple[TokenService, ...] = ()
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    key: str = field(default="", repr=False)
    run: str = ""
    skips: bool = False
    patience_seconds: float = 5.0
    upstream_seconds: float = 600.0

    def __post_init__(self) -> None:
        """Raises UsageError for what would not be safe, or could not be told apart."""
        if not is_loopback(self.host) and not self.key:
            raise UsageError(
                f"refused to listen on {self.host!r}: anybody who reaches it could read and spend what agents here do. "
                "Listen on 127.0.0.1, or give a key that every request has to bring (--key, or SUREFOOT_PROXY_KEY)"
            )
        if self.key and len(self.key) < KEY_CHARACTERS_MIN:
            raise UsageError(f"the proxy's key must have {KEY_CHARACTERS_MIN} characters or more")
        if self.run:
            check_id(self.run, "--run")
        names = [each.name for each in (*self.upstreams, *self.tokens)]
        for name in names:
            check_name(name, "a service's name")
            if is_word(name) or names.count(name) > 1:
                raise UsageError(f"a service cannot be named {name!r} here: the name is taken; choose another")
        for each in self.upstreams:
            check_url(each.base, f"the address of service {each.name!r}")
        for each in self.tokens:
            check_url(each.url, f"the token endpoint {each.name!r}")


def is_loopback(host: str) -> bool:
    """True for the names and addresses of this machine that nobody else can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_url(url: str, what: str) -> str:
    """An http(s) address without user, query or fragment."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise UsageError(f"{what} must look like https://api.example.com/v1, found {url!r}")
    return url.rstrip("/")


def read_upstream(text: str) -> Upstream:
    """`NAME=URL`; for a known name only the address changes, for another one the agent is told by hand."""
    name, sign, url = text.partition("=")
    if not sign:
        raise UsageError(f"expected NAME=URL, such as mistral=https://api.mistral.ai, found {text!r}")
    url = check_url(url, f"the address of service {name!r}")
    known = next((each for each in KNOWN if each.name == name), None)
    if known is None:
        return Upstream(name=name, base=url)
    # clients expect /v1 in OPENAI_BASE_URL, so an address that ends with it means the same
    return Upstream(name=name, base=url.removesuffix("/v1"), variables=known.variables)


def read_token_service(text: str) -> TokenService:
    """`NAME=URL[,strict|grace:SECONDS|reusable|RECEIVER]`; strict unless said."""
    name, sign, rest = text.partition("=")
    url, _, promise = rest.partition(",")
    if not sign:
        raise UsageError(
            f"expected NAME=URL[,PROMISE], such as google=https://oauth2.googleapis.com/token, found {text!r}"
        )
    return TokenService(name=name, url=check_url(url, f"the token endpoint {name!r}"), contract=read_promise(promise))


def read_promise(text: str) -> TokenContract:
    """What a provider promises: strict, grace:SECONDS, reusable, or the name of a receiver in the catalog."""
    from ..credentials.contract import grace, reusable, strict

    word, _, number = text.partition(":")
    match word:
        case "" | "strict":
            return strict()
        case "reusable":
            return reusable()
        case "grace":
            try:
                return grace(float(number))
            except ValueError:
                raise UsageError(f"expected grace:SECONDS, such as grace:30, found {text!r}") from None
        case _:
            return token_contract(text)


def with_known(chosen: tuple[Upstream, ...]) -> tuple[Upstream, ...]:
    """The known services, each replaced by the one that was chosen under its name, and the others that were chosen."""
    by_name = {each.name: each for each in (*KNOWN, *chosen)}
    return tuple(by_name.values())
