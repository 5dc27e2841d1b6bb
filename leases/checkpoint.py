"""How far a range is done: what its owner writes, and the next owner begins with.

A checkpoint is a position, and where changes behind it are done, what is not: ``high`` and the
holes below it. The next owner reads from ``position``, passes over what is at most ``high``
and in no hole, and hands on the rest.

Stores and hosts pass the value on. Only it knows what text a store keeps of it: the bare
position where nothing behind it is done, else the position, a separator, and the rest as JSON.

Limits: a key is kept as a hash of 8 bytes. Where two keys have one hash, what is done of the
one may come again for the sake of the other. Processors of .NET begin at the position.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from changefeed.feeds.feed import Change, Position
from changefeed.runtime.errors import Failure, StoreRefused

MAX_HOLES: Final = 64
_SEPARATOR: Final = "\x1f"


class Hole(msgspec.Struct, frozen=True, array_like=True):
    """Of this key nothing is done from ``sequence`` on. ``key`` is its hash, 16 hexadecimal
    digits; ``failures`` count against the first change.
    """

    key: str
    sequence: int
    failures: int = 0


class _Behind(msgspec.Struct, frozen=True, array_like=True):
    high: int
    holes: tuple[Hole, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All below ``position`` is done, and all up to the sequence ``high`` but the holes."""

    position: Position
    high: int | None = None
    holes: tuple[Hole, ...] = ()

    def __post_init__(self) -> None:
        assert self.high is not None or not self.holes, f"{self.holes} are below nothing"
        assert len(self.holes) <= MAX_HOLES, f"{len(self.holes)} holes"

    @property
    def text(self) -> str:
        """What a store keeps."""
        if self.high is None and _SEPARATOR not in self.position:
            return self.position
        rest = b"" if self.high is None else msgspec.json.encode(_Behind(self.high, self.holes))
        return f"{self.position}{_SEPARATOR}{rest.decode()}"

    @classmethod
    def of_text(cls, text: str) -> "Checkpoint":
        """Read what a store has kept. Raise ``StoreRefused`` for what is no such text."""
        position, separator, rest = text.rpartition(_SEPARATOR)
        if not separator:
            return cls(Position(text))
        if not rest:
            return cls(Position(position))
        try:
            behind = msgspec.json.decode(rest, type=_Behind)
        except msgspec.DecodeError as error:
            raise StoreRefused(
                f"the checkpoint at {position!r} names keys that wait, and they cannot be read "
                f"({error}): it was changed by hand, or a newer version wrote it. Upgrade this "
                "host, or say where the range goes on, with: changefeed reset"
            ) from error
        return cls(Position(position), behind.high, behind.holes)


def covers(high: int, holes: Mapping[str, Hole], change: Change) -> bool:
    """Whether a change behind its position is done, with these holes by their keys."""
    if change.sequence > high:
        return False
    hole = holes.get(hash_of(change.key))
    return hole is None or change.sequence < hole.sequence


@lru_cache(maxsize=4096)  # keys that wait are in each checkpoint
def hash_of(key: str) -> str:
    """Return the name that a hole has for a key."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_Before = Change | Position
"""The last change before another one, or the position between them."""


class Progress:
    """What of a range is read and not done, from ``resumed`` on, which another owner has left.

    Batches that are handed over whole, and return, cost nothing for each change. Once a part of
    a batch is done before the rest, what is left of it is kept change by change.

    ``high`` never goes down where an owner parts in order: as long as this owner has not read
    up to the ``high`` that it began with, the holes of that checkpoint count too, each from
    where this owner knows it undone.
    """

    def __init__(
        self, resumed: Checkpoint, position_after: Callable[[Change], Position]
    ) -> None:
        self._position_after = position_after
        self.moves = 0
        """How many changes, positions without any, and beginnings are done."""
        self.begin(resumed)

    def begin(self, resumed: Checkpoint) -> None:
        """Begin, or begin anew: nothing is read."""
        self.moves += 1
        self._resumed = {x.key: x for x in resumed.holes}
        self._resumed_high = -1 if resumed.high is None else resumed.high
        self._whole: deque[tuple[Sequence[Change], _Before]] = deque()
        self._apart: OrderedDict[int, tuple[Change, _Before]] = OrderedDict()
        self.end: _Before = resumed.position
        """Behind all that is read."""
        self._read_to = -1
        self._highest_done = self._resumed_high
        self._behind: dict[int, Change] = {}  # done, and perhaps in holes as they are said
        self.unacknowledged = 0
        """How many changes are read and not done."""

    def __copy__(self) -> "Progress":
        """Return one that what is done by the other does not change."""
        other = object.__new__(type(self))
        other.__dict__ = {
            name: x.copy() if isinstance(x, deque | dict) else x
            for name, x in self.__dict__.items()
        }
        return other

    @property
    def _resuming(self) -> bool:
        return self._read_to < self._resumed_high

    def read(self, changes: Sequence[Change], end: Position | None) -> Sequence[Change]:
        """Take in the next changes; return those that are not done. ``end`` is the position
        behind them, where that is known.
        """
        if not changes:
            self.moves += end is not None and end != self.end
            self.end = end or self.end
            return changes
        assert changes[0].sequence > self._read_to, (
            f"{changes[0].sequence} is read after {self._read_to}"
        )
        if self._resuming:
            before = self.end
            for x in changes:
                if not covers(self._resumed_high, self._resumed, x):
                    self._apart[x.sequence] = x, before
                before = x
            left: Sequence[Change] = [x for x in changes if x.sequence in self._apart]
        else:
            self._whole.append((changes, self.end))
            left = changes
        self._read_to = changes[-1].sequence
        self.end = end or changes[-1]
        self.unacknowledged += len(left)
        self.moves += not left
        return left

    def failures(self, changes: Sequence[Change]) -> Mapping[int, int]:
        """Return what counted against changes for the owner before, by sequence."""
        failures = dict[int, int]()
        if self._resumed and changes and changes[0].sequence <= self._resumed_high:
            for x in changes:
                hole = self._resumed.get(hash_of(x.key))
                if hole is not None and hole.sequence == x.sequence and hole.failures:
                    failures[x.sequence] = hole.failures
        return failures

    def was_read(self, change: Change) -> bool:
        return change.sequence <= self._read_to

    def is_open(self, change: Change) -> bool:
        """Whether it is read and not done."""
        in_whole = bool(self._whole) and change.sequence >= self._whole[0][0][0].sequence
        return in_whole or change.sequence in self._apart

    @property
    def open(self) -> Sequence[Change]:
        """What is read and not done, in order."""
        self._take_apart(self._read_to)
        return [x for x, _ in self._apart.values()]

    def done(self, changes: Sequence[Change]) -> int:
        """Count changes as done, in whatever order; return how many were not before."""
        if self._whole and self._whole[0][0] is changes:
            self._whole.popleft()
            found = changes
            last = changes[-1].sequence
        else:
            last = max((x.sequence for x in changes), default=-1)
            self._take_apart(last)
            found = [x for x in changes if self._apart.pop(x.sequence, None) is not None]
        count = len(found)
        if self._apart:
            self._behind.update((x.sequence, x) for x in found)
        self._highest_done = max(self._highest_done, last)
        self.unacknowledged -= count
        self.moves += count
        assert self.unacknowledged >= 0, f"{count} changes were done that were not read"
        return count

    @property
    def uncovered(self) -> int:
        """How many changes are done that a checkpoint cannot say yet: an earlier one of their
        key is not done, or there are more keys than holes.
        """
        if self._behind:
            high, found = self._holes({})
            holes = {x.key: x for x in found}
            left = (x for x in self._behind.values() if not covers(high, holes, x))
            self._behind = {x.sequence: x for x in left}
        return len(self._behind)

    def _take_apart(self, up_to: int) -> None:
        """Keep each change of the batches that begin up to that sequence by itself."""
        while self._whole and self._whole[0][0][0].sequence <= up_to:
            changes, before = self._whole.popleft()
            for x in changes:
                self._apart[x.sequence] = x, before
                before = x

    @property
    def lowest(self) -> int:
        """The sequence of the first change that is not done; none below is read if all are."""
        oldest, _ = self.oldest
        return self._read_to + 1 if oldest is None else oldest.sequence

    @property
    def oldest(self) -> tuple[Change | None, _Before]:
        """The first change that is read and not done, if any, and what is before it."""
        if self._apart:
            return next(iter(self._apart.values()))
        if self._whole:
            changes, before = self._whole[0]
            return changes[0], before
        return None, self.end

    def checkpoint(self, failures: Mapping[int, int]) -> Checkpoint:
        """Return what is done by now. ``failures`` count against changes, by sequence."""
        oldest, before = self.oldest
        position = before if isinstance(before, str) else self._position_after(before)
        none_beyond = oldest is None or self._highest_done < oldest.sequence
        if none_beyond and not self._resuming:
            return Checkpoint(position)
        high, holes = self._holes(failures)
        return Checkpoint(position, high, holes)

    def once_done(self, changes: Sequence[Change], failures: Mapping[int, int]) -> Checkpoint:
        """Return the checkpoint that is true once these are done, too.

        Raise ``Failure`` if more keys wait than it can name.
        """
        then = copy(self)
        then.done(changes)
        if changes and then.uncovered:
            raise Failure(
                f"{MAX_HOLES} keys of the range wait, and a checkpoint cannot name more: what "
                f"is behind them waits until one of them goes on"
            )
        return then.checkpoint(failures)

    def _holes(self, failures: Mapping[int, int]) -> tuple[int, tuple[Hole, ...]]:
        holes = dict[str, Hole]()
        high = max(self._read_to, self._resumed_high)
        if self._whole:
            high = self._whole[0][0][0].sequence - 1
        for x, _ in self._apart.values():
            key = hash_of(x.key)
            if key in holes:
                continue
            if len(holes) == MAX_HOLES:
                high = x.sequence - 1
                break
            holes[key] = Hole(key, x.sequence, failures.get(x.sequence, 0))
        if self._resuming:
            for key, old in self._resumed.items():
                unread = old if old.sequence > self._read_to else Hole(key, self._read_to + 1)
                holes.setdefault(key, unread)
        return high, tuple(sorted(holes.values(), key=lambda x: x.sequence))
