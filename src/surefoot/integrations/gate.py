"""Every tool call goes through here: one slot, one outcome, and a stop that no framework can swallow.

The slot is the tool_call_id of a recorded response, else the arguments and how often they were asked for in this call
scope. A framework that runs the same call again, as some do after an interruption or to retry, gets the outcome that
it had. A tool in doubt raises a signal that is no Exception, and stops the run's model calls too, since frameworks turn
what tools raise into text, and a model that reads text tries again.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..core.digest import short_digest
from ..core.errors import Diverged, Signal, SurefootError, Suspend
from ..core.journal import Branch
from ..runtime import calls
from ..runtime.calls import Place
from ..runtime.scope import Scope, current
from ..runtime.session import Session
from ..runtime.step import runs_loop
from .toolcall import tool_call

T = TypeVar("T")
POLL_SECONDS = 0.01
ID_CHARACTERS_MAX = 100
UNKNOWN = "status unknown; do not retry"


class ToolInDoubt(Suspend):
    """A tool cannot go on: it is in doubt, or waits for a person. What a model may be told of it comes first."""

    def __str__(self) -> str:
        """For frameworks that show it to the model after all."""
        return f"{UNKNOWN}. {self.reason}"


class StatusUnknown(SurefootError):
    """The same as an ordinary exception, for frameworks that hang on signals; the next model call is refused."""


class Done:
    """How a tool call ended in this process."""

    __slots__ = ("digest", "error", "value")

    def __init__(self, digest: bytes, value: Any, error: Exception | None) -> None:
        """`digest` is that of its arguments."""
        self.digest, self.value, self.error = digest, value, error

    def give(self) -> Any:
        """Return or raise what it ended with."""
        if self.error is not None:
            raise self.error
        return self.value


class Held:
    """The tool calls of one run in this process."""

    def __init__(self) -> None:
        """`flying` are under way; `done` have ended."""
        self.lock = threading.Lock()
        self.counts: dict[tuple[str, str], int] = {}
        self.flying: set[str] = set()
        self.done: dict[str, Done] = {}

    def occurrence(self, scope: str, what: str) -> int:
        """How often `what` was asked for in this call scope before."""
        with self.lock:
            number = self.counts.get((scope, what), 0)
            self.counts[scope, what] = number + 1
            return number

    def begin(self, slot: str) -> bool:
        """True if the caller may run it now; False while somebody else does."""
        with self.lock:
            if slot in self.flying:
                return False
            self.flying.add(slot)
            return True

    def end(self, slot: str, done: Done | None) -> None:
        """It is under way no more."""
        with self.lock:
            self.flying.discard(slot)
            if done is not None:
                self.done[slot] = done


_held: WeakKeyDictionary[Session, Held] = WeakKeyDictionary()
_lock = threading.Lock()


def held_by(session: Session) -> Held:
    """What is known of this run's tool calls."""
    with _lock:
        return _held.setdefault(session, Held())


class Gate:
    """One tool call on its way through: its place in the run, and what it asks for."""

    def __init__(self, place: Place, name: str, arguments: bytes, id: str | None = None) -> None:
        """`arguments` is canonical JSON; `id` the tool_call_id if the caller knows it, else that of the context."""
        self.place, self.session, self.name = place, place.session, name
        self.digest = short_digest(arguments)
        self.held = held_by(self.session)
        scope = place.branch.path
        call = tool_call.get()
        known = id or (call.id if call is not None else None)
        what = short_digest(name.encode() + b"\0" + arguments).hex()[:16]
        is_known = known is not None and calls.knows(place, known)
        if known is not None and is_known and not self._is_recorded(place, what):
            number = call.occurrence(name) if call is not None and call.id == known else 0
            text = f"{_short(known)}:{number}" if number else _short(known)
        else:
            is_known = False
            text = _nth(what, self.held.occurrence(scope, what))
        self.branch: Branch = place.at(text, known=is_known)
        self.slot = f"{self.branch.path}/{name}"

    def _is_recorded(self, place: Place, what: str) -> bool:
        """True if this call was recorded by its arguments before its id was known, and is not read yet: it stays so."""
        replay = place.session.state.replay
        path = f"{place.branch.path}[{_nth(what, self.held.counts.get((place.branch.path, what), 0))}]"
        return replay.is_recorded(Branch(path), self.name)

    # --- one call, one outcome --------------------------------------------------------------------------------------

    def run(self, body: Callable[[], T]) -> T:
        """Run `body` in this call's branch, on this thread."""
        while not self._may_begin():
            self.session.engine.clock.sleep(POLL_SECONDS)
        if self.slot in self.held.done:
            return self._again()
        token = current.set(self._scope())
        try:
            value = body()
        except BaseException as error:
            told = self._failed(error)
            if isinstance(error, Suspend) and not runs_loop():
                while self._others_fly():
                    self.session.engine.clock.sleep(POLL_SECONDS)
            raise told from error.__cause__
        finally:
            current.reset(token)
        self.held.end(self.slot, Done(self.digest, value, None))
        return value

    async def run_async(self, body: Callable[[], Awaitable[T]]) -> T:
        """Run `body` in this call's branch, in this task."""
        while not self._may_begin():
            await self.session.engine.clock.sleep_async(POLL_SECONDS)
        if self.slot in self.held.done:
            return self._again()
        token = current.set(self._scope())
        try:
            value = await body()
        except BaseException as error:
            told = self._failed(error)
            if isinstance(error, Suspend):
                while self._others_fly():
                    await self.session.engine.clock.sleep_async(POLL_SECONDS)
            raise told from error.__cause__
        finally:
            current.reset(token)
        self.held.end(self.slot, Done(self.digest, value, None))
        return value

    def _scope(self) -> Scope:
        return Scope(self.session, self.branch)

    def _may_begin(self) -> bool:
        calls.refuse_if_stopped(self.place)
        return self.slot in self.held.done or self.held.begin(self.slot)

    def _again(self) -> Any:
        done = self.held.done[self.slot]
        if done.digest != self.digest:
            what = f"tool {self.name!r} was called again for one call of the model with other arguments"
            diverged = Diverged(self.session.state.run_id, what, [self.slot], self.name)
            raise self.session.stop(diverged, self.session.state.root)
        return done.give()

    def _failed(self, error: BaseException) -> BaseException:
        """Note how it ended; what to raise. A stop is the whole agent's, so that no later model call hides it."""
        ended = Done(self.digest, None, error) if isinstance(error, Exception) else None
        told = error
        if isinstance(error, Suspend) and not isinstance(error, ToolInDoubt):
            told = self.session.suspended[self.branch.path] = ToolInDoubt(error.reason)
        if isinstance(told, Signal):
            calls.stop(self.place, told)
        self.held.end(self.slot, ended)
        return told

    def _others_fly(self) -> bool:
        """True while calls that began earlier are under way: cutting them off would leave them in doubt too."""
        return bool(self.held.flying)


def _nth(what: str, number: int) -> str:
    return f"~{what}:{number}" if number else f"~{what}"


def _short(id: str) -> str:
    """The id as a part of a slot; one that could be mistaken for another part is replaced by its digest."""
    plain = len(id) <= ID_CHARACTERS_MAX and id.isprintable() and not set(id) & set("/#[]~: ")
    return id if plain else f"~id:{short_digest(id.encode()).hex()[:16]}"
