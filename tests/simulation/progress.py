"""What is done of the changes of a world, and what of that is stored."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from changefeed.feeds.feed import Change, FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, hash_of
from changefeed.testing.history import Checkpoints, KeyedChange, KeyRecord
from changefeed.testing.history import Violation as Broken

_FAR = 1 << 62


class Violation(AssertionError):
    """An invariant does not hold. The text tells which, where and when."""


class Lines(Protocol):
    """What a reader of a range passes on its way. Changes are named by their numbers."""

    def place(self, position: Position) -> int: ...
    def between(self, found: FeedRange, first: int, last: int) -> Sequence[int]: ...
    def transaction(self, change: Change) -> int: ...


class Progress:
    """Order by key, loss and checkpoints are judged by ``changefeed.testing.history``."""

    def __init__(self, lines: Lines) -> None:
        self.most_unstored: int | None = None
        """How many changes of a range may be done and not stored: what a crash repeats."""
        self._lines = lines
        self._keys = KeyRecord()
        self._named: dict[int, KeyedChange] = {}
        self._checkpoints = Checkpoints()
        self._passed: set[int] = set()  # by a checkpoint that was stored
        self._behind: dict[int, Change] = {}  # of these, what was behind its position
        self._unstored: dict[RangeId, dict[int, Change]] = defaultdict(dict)
        self._barred: set[int] = set()

    def appended(self, key: str, number: int, *, owed: bool = True) -> None:
        """``owed`` says whether it is to be delivered: else it may be."""
        if owed:
            self._named[number] = KeyedChange(key, number)
            self._keys.wrote(self._named[number])

    def bar(self, number: int) -> None:
        """Nobody is to deliver a change: it lies before the start of the fleet."""
        self._barred.add(number)

    def unbar(self, found: FeedRange, position: int) -> None:
        """A person lets what lies after a position come."""
        if self._barred:
            self._barred.difference_update(self._lines.between(found, position, _FAR))

    def check_not_barred(self, who: object, changes: Iterable[Change]) -> None:
        for change in changes:
            if int(change.body) in self._barred:
                raise Violation(f"{who}: change {int(change.body)} lies before the start")

    def check_order(self, who: object, changes: Iterable[Change]) -> None:
        """Check that none of these comes before an earlier one of its key is done."""
        _raise(self._keys.early(_name(x) for x in changes), who)

    def check_not_stored(self, who: object, changes: Iterable[Change]) -> None:
        for change in changes:
            if int(change.body) in self._passed:
                raise Violation(f"{who}: change {int(change.body)} was checkpointed before")

    def done(self, change: Change) -> bool:
        """Note that a change is done. Return whether it was before."""
        return self._keys.done(_name(change))

    def count_unstored(
        self, range_id: RangeId, changes: Sequence[Change], *, by_hand: bool
    ) -> None:
        """Count what is done of a range and not stored. Where an operator has interfered, two
        owners may be at two places of it.

        No position is within a transaction, so what is done of one whose rest is yet to come
        counts beside what may be done and not stored.
        """
        unstored = self._unstored[range_id]
        for change in changes:
            if int(change.body) not in self._passed:
                unstored[int(change.body)] = change
        if self.most_unstored is None or by_hand:
            return
        transactions = [self._lines.transaction(x) for x in unstored.values()]
        cut = transactions.count(min(transactions)) - 1 if transactions else 0
        if len(unstored) - cut > self.most_unstored:
            raise Violation(
                f"{len(unstored)} changes of {range_id} are done and not stored, "
                f"and {self.most_unstored} may be"
            )

    def place(self, position: Position) -> int:
        return self._lines.place(position)

    def reached(self, range_id: RangeId) -> int:
        return self._checkpoints.position(range_id)

    @property
    def furthest(self) -> int | None:
        """How far the checkpoint is that is furthest on, whatever the range."""
        return self._checkpoints.furthest

    def checkpoint_stored(
        self, found: FeedRange, position: int, checkpoint: Checkpoint | None = None
    ) -> None:
        """``checkpoint`` says what is done behind the position, but for its holes."""
        numbers = self._lines.between(found, self.reached(found.id), position)
        passed = (self._named[x] for x in numbers if x in self._named)
        _raise(self._checkpoints.stored(found.id, position, passed, self._keys))
        self._passed.update(numbers)
        for n in numbers:
            self._behind.pop(n, None)
        left = self._unstored[found.id]
        high = -1 if checkpoint is None or checkpoint.high is None else checkpoint.high
        holes = {} if checkpoint is None else {x.key: x.sequence for x in checkpoint.holes}
        behind = {
            n: x
            for n, x in left.items()
            if n not in self._passed
            and x.sequence < min(high + 1, holes.get(hash_of(x.key), high + 1))
        }
        self._behind |= behind
        self._passed.update(behind)
        self._unstored[found.id] = {n: x for n, x in left.items() if n not in self._passed}

    def moved(self, found: FeedRange, position: int) -> None:
        """An operator has moved a checkpoint: what lies after it comes again."""
        self.come_again(found, position, self.reached(found.id))
        self._unstored[found.id].clear()
        self._checkpoints.moved(found.id, position)

    def come_again(self, found: FeedRange, first: int, last: int) -> None:
        """What lies between may come again, though checkpoints have passed it; so may all that
        was done behind a position, which whoever begins at ``first`` knows nothing of.
        """
        far = max((x.sequence for x in self._behind.values()), default=-1) + 1
        behind = self._behind.keys() & self._lines.between(found, first, far)
        for n in behind:
            del self._behind[n]
        self._passed.difference_update(self._lines.between(found, first, last), behind)

    def undelivered(self) -> list[int]:
        """Return the changes that no observer has ever finished."""
        return [x.number for x in self._keys.missing()]


def _name(change: Change) -> KeyedChange:
    return KeyedChange(change.key, int(change.body))


def _raise(broken: Iterable[Broken], who: object = None) -> None:
    for one in broken:
        raise Violation(str(one) if who is None else f"{who}: {one}")
