"""Where a credential stands in the store, read with a few point reads, and written nowhere else.

What was read once is remembered, and only grows: a settled number never changes. So an asker whose token is fresh pays
two reads: no newer family, no newer generation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ..core.digest import BLOB_MARK
from ..core.effect import TERMINAL, Effect, Status
from ..core.ids import derive_key
from ..runtime.engine import Engine
from .chain import CONNECT, FORGET, RefreshRequest, State, identity_of, newest, state_of
from .errors import NeedsReconnect
from .sealing import Keys, Place, Sealed
from .token import Held

_decode_request = msgspec.json.Decoder(RefreshRequest).decode
_decode_sealed = msgspec.json.Decoder(Sealed).decode
_decode_held = msgspec.json.Decoder(Held).decode


class CredentialView(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a credential.

    `state`: not_connected, ready, refreshing, needs_reconnect or forgotten. `expires_at`: seconds since the epoch, None
    if not known. `key_id`: the secret key that its newest token is encrypted with. `effect`: the key of its newest
    refresh. `why`: what has to be mended.
    """

    name: str
    state: str
    family: int = 0
    generation: int = 0
    expires_at: float | None = None
    key_id: str = ""
    effect: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The newest that exists: `top` of all families, `family` in use (0: none), its newest `generation`.

    `token_generation` is the newest that gave a token, `effect` the record of `generation` (None for the family's
    first token), `held` the token itself.
    """

    engine: Engine
    top: int = 0
    family: int = 0
    is_forgotten: bool = False
    generation: int = 0
    effect: Effect | None = None
    token_generation: int = 0
    held: Held | None = field(default=None, repr=False)

    @property
    def state(self) -> State:
        """What the newest generation stands for."""
        return State.TOKEN if self.effect is None else state_of(self.effect)

    @property
    def place(self) -> tuple[int, int]:
        """Compares as newer and older."""
        return self.family, self.generation

    def next_refresh(self) -> tuple[int, int]:
        """(generation, the one whose refresh token it uses) of the refresh to settle: the open one, or a new one."""
        if self.effect is not None and self.effect.status not in TERMINAL:
            return self.generation, self.token_generation
        return self.generation + 1, self.token_generation


class Reader:
    """Reads one credential's chain from one store."""

    def __init__(self, engine: Engine, keys: Keys, credential: str) -> None:
        """Nothing is read yet."""
        self.engine, self.keys, self.credential = engine, keys, credential

    def key_of(self, family: int, generation: int) -> str:
        """The key of one number's effect."""
        return derive_key(self.engine.namespace, identity_of(self.credential, family, generation))

    def read(self, family: int, generation: int) -> Effect | None:
        """One number's effect, if it exists."""
        return self.engine.store.read_effect(self.key_of(family, generation))

    def look(self, before: Standing | None = None, *, opens: bool = True) -> Standing:
        """Where the credential stands now; `before` is an earlier answer, to start from.

        With `opens`, a token that may still be used is opened: raises WrongKey where its key is missing, NeedsReconnect
        for one that was not sealed by us.
        """
        if before is None or before.engine is not self.engine:
            before = Standing(engine=self.engine)
        top, family, is_forgotten = self._families(before)
        if not family or is_forgotten:
            return Standing(engine=self.engine, top=top, family=family, is_forgotten=is_forgotten)
        known = before if before.family == family else Standing(engine=self.engine, family=family)
        return self._stand(top, known, opens=opens)

    def look_at(self, family: int) -> Standing:
        """Where this family stands, in use or not; its token is opened where one may still be good."""
        return self._stand(family, Standing(engine=self.engine, family=family), opens=True)

    def _stand(self, top: int, before: Standing, *, opens: bool) -> Standing:
        family = before.family
        generation, effect = newest(lambda number: self.read(family, number), before.generation)
        if effect is None and (effect := before.effect) is not None and effect.status not in TERMINAL:
            effect = self.read(family, generation)
        if effect is None or state_of(effect) is State.TOKEN:
            token_generation = generation
        else:
            token_generation = _decode_request(self._fetch(effect.request)).previous
        held = before.held if before.token_generation == token_generation else None
        if held is None and opens and (effect is None or state_of(effect) not in (State.DEAD, State.PARKED)):
            held = self.open(family, token_generation)
        return Standing(
            engine=self.engine,
            top=top,
            family=family,
            generation=generation,
            effect=effect,
            token_generation=token_generation,
            held=held,
        )

    def _families(self, before: Standing) -> tuple[int, int, bool]:
        """(the newest number, the family in use or 0, it was forgotten)."""
        top, _ = newest(lambda number: self.read(number, 0), before.top)
        if top == before.top and before.family == top:
            return top, before.family, before.is_forgotten
        for family in range(top, 0, -1):
            head = self.read(family, 0)
            if head is not None and head.name == FORGET:
                return top, family, True
            if head is not None and head.status is Status.CONFIRMED:
                return top, family, False
        return top, 0, False

    def head_is_open(self, family: int) -> bool:
        """True if a connection was begun under this number and its token never arrived."""
        head = self.read(family, 0)
        return head is not None and head.name == CONNECT and head.status not in TERMINAL

    def sealed(self, family: int, generation: int) -> Sealed:
        """The encrypted token of a number that gave one."""
        effect = self.read(family, generation)
        try:
            return _decode_sealed(self._fetch(effect.receipt if effect is not None else b""))
        except msgspec.MsgspecError:  # its text could hold what a person put there
            pass
        why = "the receipt of its last refresh is not an encrypted token; a person decided that refresh by hand"
        raise NeedsReconnect(
            self.credential, why, family=family, generation=generation, effect=self.key_of(family, generation)
        )

    def open(self, family: int, generation: int) -> Held:
        """The token of a number that gave one."""
        return _decode_held(self.keys.open(self.sealed(family, generation), self.place(family, generation)))

    def place(self, family: int, generation: int) -> Place:
        """What a box of this number is bound to."""
        return Place(self.engine.namespace, self.credential, family, generation)

    def _fetch(self, value: bytes) -> bytes:
        return self.engine.store.read_blob(value[1:]) if value[:1] == BLOB_MARK else value
