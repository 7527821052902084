"""What a disk may hold after a power cut, as a pure model: requests go in, every possible state comes out.

The rule, in the words of a disk:

- A 512-byte sector holds any of the values it has had since its file was last synced, each sector for itself.
- A file has any of the lengths it has had since then, or ends with any sector in between. Bytes never written are zero.
- A name in the directory is bound to any of the files (or to none) that it was bound to since the directory was last
  synced, each name for itself.
- What was synced stays, and so does what lies beside a written sector (SQLite's "powersafe overwrite" assumption).

One cut can leave 2^500 states, so none is built in advance: a `Medium` is one state whose sectors, lengths and names
are chosen when somebody looks at them. A reader that does the same for the same bytes cannot tell apart two states that
differ only in what it never looked at, so one look stands for all of them. `Medium.states_alike` says how many that
are, and over a complete `Walk` they must add up to `Cut.state_count`.

Method: the ALICE and CrashMonkey papers (https://www.usenix.org/conference/osdi14/technical-sessions/presentation/pillai,
https://www.usenix.org/conference/osdi18/presentation/mohan); choosing late is the trick of lazy symbolic execution.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

SECTOR = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request to the disk. `verb` is write, truncate, sync, create, delete or sync_directory."""

    verb: str
    name: str = ""
    offset: int = 0
    content: bytes = b""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """From here on commit `started` may be on disk, and commit `acked` must be."""

    started: int
    acked: int


class Inode:
    """One file: its latest bytes, and every value each sector and the length have had since the last sync."""

    def __init__(self, content: bytes = b"") -> None:
        self.latest = bytearray(content)
        self.sectors: dict[int, list[bytes]] = {}
        self.sizes = [len(content)]

    def write(self, offset: int, content: bytes) -> None:
        end = offset + len(content)
        touched = range(min(offset, len(self.latest)) // SECTOR, -(-end // SECTOR))
        old = [self._sector(number) for number in touched]
        if end > len(self.latest):
            edges = range((len(self.latest) // SECTOR + 1) * SECTOR, end, SECTOR)
            self._add_sizes([*edges, end])
            self.latest.extend(bytes(end - len(self.latest)))
        self.latest[offset:end] = content
        self._add_versions(touched, old)

    def truncate(self, size: int) -> None:
        touched = range(size // SECTOR, -(-len(self.latest) // SECTOR))
        old = [self._sector(number) for number in touched]
        self._add_sizes([size])
        del self.latest[size:]
        self._add_versions(touched, old)

    def settle(self) -> None:
        self.sectors.clear()
        self.sizes = [len(self.latest)]

    def remains(self) -> Remains:
        """What a cut at this moment may leave of it."""
        sectors = {number: tuple(versions) for number, versions in self.sectors.items()}
        return Remains(latest=bytes(self.latest), sectors=sectors, sizes=tuple(self.sizes))

    @property
    def unsettled(self) -> bool:
        return bool(self.sectors) or len(self.sizes) > 1

    def _sector(self, number: int) -> bytes:
        return bytes(self.latest[number * SECTOR : (number + 1) * SECTOR]).ljust(SECTOR, b"\0")

    def _add_versions(self, touched: range, old: list[bytes]) -> None:
        for number, before in zip(touched, old, strict=True):
            versions = self.sectors.get(number, [before])
            if (after := self._sector(number)) not in versions:
                self.sectors[number] = [*versions, after]

    def _add_sizes(self, sizes: Iterable[int]) -> None:
        self.sizes += [size for size in sizes if size not in self.sizes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Remains:
    """What a cut may leave of one file: `latest` bytes, in which some sectors and the length may be older."""

    latest: bytes
    sectors: Mapping[int, Sequence[bytes]]
    sizes: Sequence[int]

    def state_count(self, size: int | None = None, chosen: Collection[int] = ()) -> int:
        """How many images are left once the length and some sectors are chosen."""
        sizes = self.sizes if size is None else (size,)
        rest = [(number * SECTOR, len(v)) for number, v in self.sectors.items() if number not in chosen]
        return sum(prod(options for begin, options in rest if begin < end) for end in sizes)


NOTHING = Remains(latest=b"", sectors={}, sizes=(0,))


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One instant without power: what each name may be bound to, the last commit acknowledged, the last one begun."""

    names: Mapping[str, Sequence[Remains | None]]
    acked: int
    started: int

    @property
    def state_count(self) -> int:
        """How many different sets of files this cut can leave."""
        return prod(states_of(bound) for bound in self.names.values())


def states_of(bound: Sequence[Remains | None]) -> int:
    """How many images a name can show."""
    return sum(1 if file is None else file.state_count() for file in bound)


def cuts(
    base: Mapping[str, bytes],
    events: Iterable[Asked | Mark],
    *,
    lying_sync: Callable[[int], bool] = lambda number: False,
) -> Iterator[Cut]:
    """Yield a cut before each sync, after each acknowledgement and at the end.

    An instant between two syncs leaves a subset of what the later instant can leave, so these cuts cover them all.
    `lying_sync(n)` says whether the n-th sync (from 0) returned without doing anything: the negative control.
    """
    names: dict[str, list[Inode | None]] = {name: [Inode(content)] for name, content in base.items()}
    mark, sync_count = Mark(started=0, acked=0), 0

    def cut() -> Cut:
        frozen = {name: [inode and inode.remains() for inode in bound] for name, bound in names.items()}
        return Cut(names=frozen, acked=mark.acked, started=mark.started)

    def unsettled() -> bool:
        return any(len(bound) > 1 or (bound[-1] and bound[-1].unsettled) for bound in names.values())

    for event in events:
        if isinstance(event, Mark):
            newly_acked, mark = event.acked > mark.acked, event
            if newly_acked:
                yield cut()
        elif event.verb.startswith("sync"):
            if unsettled():
                yield cut()
            if not lying_sync(sync_count):
                _settle(names, event)
            sync_count += 1
        else:
            _change(names, event)
    if unsettled():
        yield cut()


def _settle(names: dict[str, list[Inode | None]], event: Asked) -> None:
    if event.verb == "sync_directory":
        for bound in names.values():
            del bound[:-1]
    elif inode := names[event.name][-1]:
        inode.settle()


def _change(names: dict[str, list[Inode | None]], event: Asked) -> None:
    bound = names.setdefault(event.name, [None])
    if event.verb in ("create", "delete"):
        bound.append(Inode() if event.verb == "create" else None)
        return
    inode = bound[-1]
    assert inode is not None, f"{event.verb} on {event.name}, which does not exist"
    if event.verb == "write":
        inode.write(event.offset, event.content)
    else:
        inode.truncate(event.offset)


# --- one state at a time -----------------------------------------------------------------------------------------


class Chooser(Protocol):
    def choose(self, option_count: int) -> int: ...


class Walk:
    """Depth first through every combination of choices, the oldest value first."""

    def __init__(self) -> None:
        self.taken: list[list[int]] = []
        self.depth = 0

    def choose(self, option_count: int) -> int:
        if self.depth == len(self.taken):
            self.taken.append([0, option_count])
        self.depth += 1
        return self.taken[self.depth - 1][0]

    def advance(self) -> bool:
        """Move to the next combination; False when there is none."""
        del self.taken[self.depth :]
        self.depth = 0
        while self.taken and self.taken[-1][0] + 1 == self.taken[-1][1]:
            self.taken.pop()
        if self.taken:
            self.taken[-1][0] += 1
        return bool(self.taken)


class Dice:
    """Each choice for itself; how likely the newest value is differs from one state to the next."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.newest = rng.choice((0.0, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0))

    def choose(self, option_count: int) -> int:
        if self.rng.random() < self.newest:
            return option_count - 1
        return self.rng.randrange(option_count - 1) if option_count > 1 else 0


class View:
    """A file as one state shows it; each choice is made when somebody looks. Writes of the recovery stay in here."""

    def __init__(self, file: Remains, chooser: Chooser) -> None:
        self.file, self.chooser = file, chooser
        self.first_open = min(file.sectors, default=0) * SECTOR
        self.last_open = (max(file.sectors, default=-1) + 1) * SECTOR
        self.chosen: dict[int, bytes] = {}
        self.chosen_size: int | None = None
        self.solid: bytearray | None = None

    def size(self) -> int:
        if self.solid is not None:
            return len(self.solid)
        if self.chosen_size is None:
            sizes = self.file.sizes
            self.chosen_size = sizes[self.chooser.choose(len(sizes)) if len(sizes) > 1 else 0]
        return self.chosen_size

    def read(self, amount: int, offset: int) -> bytes:
        if self.solid is not None:
            return bytes(self.solid[offset : offset + amount])
        end = min(offset + amount, self.size())
        piece = self.file.latest[offset:end]
        if len(piece) < end - offset:
            piece = piece.ljust(end - offset, b"\0")
        return piece if end <= self.first_open or offset >= self.last_open else self._mixed(piece, offset, end)

    def _mixed(self, piece: bytes, offset: int, end: int) -> bytes:
        """The piece with the chosen value of each sector that may be older."""
        mixed = bytearray(piece)
        for number in range(offset // SECTOR, -(-end // SECTOR)):
            if number not in self.file.sectors:
                continue
            if number not in self.chosen:
                versions = self.file.sectors[number]
                self.chosen[number] = versions[self.chooser.choose(len(versions))]
            begin = number * SECTOR
            start, stop = max(offset, begin), min(end, begin + SECTOR)
            mixed[start - offset : stop - offset] = self.chosen[number][start - begin : stop - begin]
        return bytes(mixed)

    def write(self, content: bytes, offset: int) -> None:
        image = self.made_solid()
        image.extend(bytes(max(0, offset + len(content) - len(image))))
        image[offset : offset + len(content)] = content

    def truncate(self, size: int) -> None:
        del self.made_solid()[size:]

    def made_solid(self) -> bytearray:
        if self.solid is None:
            self.solid = bytearray(self.read(self.size(), 0))
        return self.solid


class Medium:
    """One state of the disk after a cut, as far as it has been looked at."""

    def __init__(self, cut: Cut, chooser: Chooser) -> None:
        self.cut, self.chooser = cut, chooser
        self.views: dict[str, View | None] = {}  # as the cut left them
        self.now: dict[str, View | None] = {}  # as the recovery changed them

    def find(self, path: str) -> View | None:
        name = os.path.basename(path)
        if name not in self.now:
            bound = self.cut.names.get(name, (None,))
            file = bound[self.chooser.choose(len(bound)) if len(bound) > 1 else 0]
            self.now[name] = self.views[name] = file and View(file, self.chooser)
        return self.now[name]

    def open(self, path: str) -> View:
        view = self.find(path) or View(NOTHING, self.chooser)
        self.now[os.path.basename(path)] = view
        return view

    def delete(self, path: str) -> None:
        self.now[os.path.basename(path)] = None

    def states_alike(self) -> int:
        """How many states of the cut agree with this one in everything that was looked at."""
        alike = 1
        for name, bound in self.cut.names.items():
            if name not in self.views:
                alike *= states_of(bound)
            elif view := self.views[name]:
                alike *= view.file.state_count(view.chosen_size, view.chosen)
        return alike

    def files(self) -> dict[str, bytes]:
        """Choose all that is left and return the files."""
        views = {name: self.find(name) for name in self.cut.names}
        return {name: bytes(view.made_solid()) for name, view in views.items() if view}
