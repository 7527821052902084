"""What keeps a credential from giving a token. None of these was raised after a request of the caller's had left.

So all of them are `NotSent`: an effect whose body asks for a token and gets one of these was certainly not sent.
No message holds a secret.
"""

from __future__ import annotations

from ..core.errors import NotSent


class CredentialError(NotSent):
    """Base of what a credential raises instead of giving a token."""


class NeedsReconnect(CredentialError):
    """Only a new authorization helps: the refresh token was refused, used up by a lost answer, or never given."""

    def __init__(self, credential: str, why: str, *, family: int = 0, generation: int = 0, effect: str = "") -> None:
        """`effect` is the key of the refresh that ended it, "" if there is none."""
        shown = f" (generation {generation} of family {family}, effect {effect[:12]})" if effect else ""
        super().__init__(
            f"credential {credential!r} needs to be reconnected: {why}{shown}. Let its owner authorize it again and "
            "pass the new tokens to reconnect(Token(...)); until then no token is given out and nothing is sent."
        )
        self.credential, self.why, self.family, self.generation, self.effect = (
            credential,
            why,
            family,
            generation,
            effect,
        )


class NotRefreshed(CredentialError):
    """There is no new token yet, and asking again may help: the cause is outside, such as an endpoint that is down."""

    def __init__(self, credential: str, why: str) -> None:
        """`why` names the cause without any secret."""
        super().__init__(f"credential {credential!r} was not refreshed: {why}. Mend that, or ask again later")
        self.credential, self.why = credential, why


class WrongKey(CredentialError):
    """A stored secret cannot be opened with the keys at hand, or there is no key."""
