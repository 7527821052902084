"""Byte streams of httpx and httpx2: one that gives out what is recorded, one that records what it gives out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.scope import current
from .sse import Commit

if TYPE_CHECKING:
    from .exchange import Library, Recording


class Streams(NamedTuple):
    """Makes the streams of one library."""

    recorded: Callable[[list[bytes], Exception | None], Any]
    recording: Callable[[Library, Recording], Any]


def streams_of(module: ModuleType) -> Streams:
    """The streams of httpx or httpx2."""
    sync_base: Any = module.SyncByteStream
    async_base: Any = module.AsyncByteStream
    both = (sync_base, async_base)
    recorded: Any = type("RecordedStream", (_Recorded, *both), {})
    recording: Any = type("RecordingStream", (_Recording, *both), {})
    return Streams(recorded, recording)


class _Recorded:
    """Gives out the pieces, then raises the error if there is one."""

    def __init__(self, pieces: list[bytes], error: Exception | None) -> None:
        self._pieces, self._error = pieces, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


_END = object()


class _Recording:
    """Gives out what the recorder lets through; what says that the answer is complete waits until it is recorded.

    While a piece is read from the wire, the run's scope is that of a body: a time-out of the client's own is no
    business of the run's.
    """

    def __init__(self, library: Library, recording: Recording) -> None:
        self._library, self._recording = library, recording
        self._body = recording.slot.place.session.step_scope

    def __iter__(self) -> Iterator[bytes]:
        recording = self._recording
        try:
            pieces = recording.response.iter_bytes()
            while True:
                token = current.set(self._body)
                try:
                    chunk: Any = next(pieces, _END)
                finally:
                    current.reset(token)
                for piece in recording.recorder.finish() if chunk is _END else recording.recorder.feed(chunk):
                    if isinstance(piece, Commit):
                        recording.slot.commit(**recording.record())
                    else:
                        recording.given.append(piece)
                        yield piece
                if chunk is _END:
                    break
            recording.ended(self._library, None)
        except GeneratorExit:
            raise
        except BaseException as error:
            recording.ended(self._library, error)
            raise

    async def __aiter__(self) -> AsyncIterator[bytes]:
        recording = self._recording
        try:
            pieces = recording.response.aiter_bytes()
            while True:
                token = current.set(self._body)
                try:
                    chunk: Any = await anext(pieces, _END)
                finally:
                    current.reset(token)
                for piece in recording.recorder.finish() if chunk is _END else recording.recorder.feed(chunk):
                    if isinstance(piece, Commit):
                        await recording.slot.commit_async(**recording.record())
                    else:
                        recording.given.append(piece)
                        yield piece
                if chunk is _END:
                    break
            recording.ended(self._library, None)
        except GeneratorExit:
            raise
        except BaseException as error:
            recording.ended(self._library, error)
            raise

    def close(self) -> None:
        self._recording.ended(self._library, None)
        self._recording.response.close()

    async def aclose(self) -> None:
        self._recording.ended(self._library, None)
        await self._recording.response.aclose()

    def __del__(self) -> None:
        self._recording.slot.give_back()
