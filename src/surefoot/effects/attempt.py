"""What an effect's body is given besides its own arguments."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, TypeVar

from msgspec import Struct, field

from ..core.contract import Contract, Kind, Place
from ..core.effect import Effect
from ..core.errors import UsageError
from . import guard
from .classify import classify_error, classify_response
from .clients import make_client, make_options, make_session
from .reading import Reading, Says, Unsuccessful

T = TypeVar("T")


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of an effect. One attempt is one request; `session`, `client` and `options` keep a library to that.

    `key` is the idempotency key as the receiver wants it, the same at every try. Of `headers`, `params` and `fields`
    the one that the contract names carries it. `timeout` is in seconds, `deadline` in seconds since the epoch: after it
    the request must not be in flight any more. `number` counts tries from 1. `scope` is where the request has to go.
    `connection` is set for `same_transaction` effects only.
    """

    key: str
    timeout: float
    deadline: float
    number: int
    identity: str
    effect: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    params: dict[str, str] = field(default_factory=dict[str, str])
    fields: dict[str, str] = field(default_factory=dict[str, str])
    scope: dict[str, str] = field(default_factory=dict[str, str])
    record: Effect | None = None
    connection: Any = None

    def __repr__(self) -> str:
        """Without what is sent."""
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__[:-2])
        return f"Attempt({', '.join(shown)})"

    @staticmethod
    def of(effect: Effect, connection: Any = None) -> Attempt:
        """The attempt that the effect's record describes."""
        contract = effect.contract
        key = f'"{effect.sent_key}"' if contract.quoted else effect.sent_key
        placed = {contract.key_name: key} if contract.key_name else {}
        return Attempt(
            key=effect.sent_key,
            headers=placed if contract.place in (Place.HEADER, Place.MAIL_HEADER) else {},
            params=placed if contract.place is Place.QUERY else {},
            fields=placed if contract.place in (Place.BODY, Place.PROPERTY) else {},
            timeout=effect.timeout_seconds,
            deadline=effect.deadline_at,
            number=effect.attempts,
            identity=effect.identity,
            effect=effect.key,
            scope=dict(effect.scope),
            record=effect,
            connection=connection,
        )

    # --- reading an answer ------------------------------------------------------------------------------------------

    def classify(self, answer: object) -> Reading:
        """What a response or an exception of a client library says about this effect, by its contract.

        Knows httpx, httpx2, requests, urllib3, aiohttp, botocore, stripe, openai, anthropic, slack_sdk, PyGithub,
        twilio and sendgrid, and what looks like them. Reads nothing from the network: read a streamed body first.
        Raises UsageError for what is neither. An exception that leaves the body is classified the same way by itself.
        """
        contract = self.record.contract if self.record is not None else Contract(kind=Kind.OPAQUE)
        marks = (self.key, self.effect)
        if isinstance(answer, BaseException):
            held = guard.watching.get()
            return classify_error(answer, contract, marks, has_left=held is not None and held.has_left)
        reading = classify_response(answer, contract, marks)
        if reading is None:
            raise UsageError(
                f"attempt.classify expected a response or an exception of a client library, found {type(answer)!r}; "
                "raise Refused, NotSent or Exists to say what it means"
            )
        return reading

    def check(self, response: T) -> T:
        """The response, if it is a success; raises Unsuccessful with the reading otherwise.

        Let that error leave the body: it is recorded as what it means. Also an answer such as "a repeat, it happened
        before" under status 409 is raised, since its body has another shape; it confirms the effect.
        """
        reading = self.classify(response)
        if reading.kind is Says.LANDED and 200 <= reading.status < 300:
            return response
        raise Unsuccessful(reading)

    # --- clients that send once -------------------------------------------------------------------------------------

    def session(self) -> Any:
        """A `requests.Session` that sends once, with this attempt's timeout where a call gives none, and its key."""
        return make_session(self)

    def client(self, library: str = "", **options: Any) -> Any:
        """An `httpx.Client` (or `httpx2`) with this attempt's timeout and key; `options` go to its constructor."""
        return make_client(self, is_async=False, library=library, options=options)

    def async_client(self, library: str = "", **options: Any) -> Any:
        """An `httpx.AsyncClient` (or `httpx2`) with this attempt's timeout and key."""
        return make_client(self, is_async=True, library=library, options=options)

    def options(self, library: str) -> dict[str, Any]:
        """Arguments for the constructor of a package's client: its retries off, this attempt's timeout.

        `library` is "aiohttp", "anthropic", "boto3", "botocore", "github", "openai", "slack_sdk", "stripe", "twilio" or
        "urllib3". Raises UsageError for another.
        """
        return make_options(self, library)

    def more_requests(self) -> AbstractContextManager[None]:
        """Within the block this attempt may send to the same place again, which is stopped otherwise.

        The body then answers for what a crash between two of them leaves behind.
        """
        return guard.more_requests()
