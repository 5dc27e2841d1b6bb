"""What must hold of what a fleet was given: nothing lost, in order, repeated where it may be.

A *history* has what was written, what was delivered and which checkpoints were stored, in the
order of its happening. ``violations`` judges a whole one, of any number of hosts:

    written = {"order-7": [1, 2, 3]}  # the numbers of each key, which only grow
    assert violations(history, written, repeats=100) == []

The rules are also there one by one, for callers that look while things happen, or know less:
``KeyRecord`` (order by key, and missing changes), ``KeyOrder`` (order by key, if the written
changes are not known), ``Tenures`` (what each owner of a range was given) and ``Checkpoints``.
"""

from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P")
T = TypeVar("T", bound=Hashable)


class Rule(StrEnum):
    """What a history must keep to."""

    LOST = "every change is delivered"
    INVENTED = "only what was written is delivered"
    ORDER = "a change comes once all earlier ones of its key have come"
    RANGE = "a key goes on only in a range that follows the one it came in"
    GAP = "an owner is given one change of its range after the other"
    REPEATED = "only as an owner begins do changes come again, and only so many"
    EPOCH = "no owner begins a batch once a later owner has begun"
    CHECKPOINT_BACK = "a checkpoint never goes back"
    CHECKPOINT_AHEAD = "a checkpoint passes over no change that is not done"


@dataclass(frozen=True, slots=True)
class Violation:
    rule: Rule
    text: str

    def __str__(self) -> str:
        return self.text


class KeyedChange(NamedTuple):
    """A change, by its key and its number among those of the key. Numbers only grow."""

    key: str
    number: int

    def __str__(self) -> str:
        return f"change {self.number} of key {self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One change that an observer was given. Sequences of a range are dense."""

    host: str
    range_id: str
    epoch: int
    sequence: int
    key: str
    number: int
    begins_batch: bool = True

    @property
    def change(self) -> KeyedChange:
        return KeyedChange(self.key, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint: all of a range up to ``sequence`` is done."""

    range_id: str
    sequence: int


def violations(
    history: Iterable[Delivery | StoredCheckpoint],
    written: Mapping[str, Sequence[int]],
    *,
    repeats: int | None = None,
) -> list[Violation]:
    """Return what must not have happened.

    ``written`` are the numbers of each key, in order. An owner that begins may be given up to
    ``repeats`` changes again, ``None`` for any number of them.
    """
    keys, tenures, epochs = KeyRecord(written), Tenures(repeats=repeats), _Epochs()
    checkpoints = Checkpoints()
    found: list[Violation] = []
    for event in history:
        if isinstance(event, StoredCheckpoint):
            done = range(1, tenures.reached(event.range_id) + 1)
            first = checkpoints.position(event.range_id)
            passed = range(first + 1, event.sequence + 1)
            found += checkpoints.stored(event.range_id, event.sequence, passed, done)
            continue
        found += keys.invented([event.change])
        found += keys.early([event.change])
        keys.done(event.change)
        found += epochs.begun(event)
        place = event.range_id, event.epoch
        found += tenures.given(*place, event.sequence, event.sequence).problems
    return found + keys.lost()


def repeated(history: Iterable[Delivery]) -> int:
    """Count the deliveries beyond the first of each change."""
    counts = Counter((x.range_id, x.sequence) for x in history)
    return sum(counts.values()) - len(counts)


class KeyRecord:
    """The changes of each key, as they were written, and which of them are done.

    A change may begin once all earlier ones of its key are done; what is done may come again.
    """

    def __init__(self, written: Mapping[str, Sequence[int]] | None = None) -> None:
        self._place: dict[KeyedChange, int] = {}  # among those of its key
        self._written: Counter[str] = Counter()
        self._reached: Counter[str] = Counter()  # how many of a key are done, without a gap
        self._done: set[KeyedChange] = set()
        for key, numbers in (written or {}).items():
            for number in numbers:
                self.wrote(KeyedChange(key, number))

    def wrote(self, change: KeyedChange) -> None:
        self._place[change] = self._written[change.key]
        self._written[change.key] += 1

    def invented(self, changes: Iterable[KeyedChange]) -> Iterator[Violation]:
        for x in changes:
            if x not in self._place:
                yield Violation(Rule.INVENTED, f"{x} was never written")

    def early(self, changes: Iterable[KeyedChange]) -> Iterator[Violation]:
        """Say which of these, done in this order, come before an earlier one of their key."""
        upcoming: dict[str, int] = {}
        for x in changes:
            place = self._place.get(x, 0)
            allowed = upcoming.get(x.key, self._reached[x.key])
            if place > allowed:
                yield Violation(
                    Rule.ORDER, f"{x} came before an earlier one of its key was done"
                )
            upcoming[x.key] = max(allowed, place + 1)

    def done(self, change: KeyedChange) -> bool:
        """Note that a change is done. Return whether it was before."""
        again = change in self._done
        self._done.add(change)
        if self._place.get(change) == self._reached[change.key]:
            self._reached[change.key] += 1
        return again

    def __contains__(self, change: object) -> bool:
        """Whether a change is done."""
        return change in self._done

    def missing(self) -> list[KeyedChange]:
        return [x for x in self._place if x not in self._done]

    def lost(self) -> list[Violation]:
        missing = self.missing()
        some = ", ".join(map(str, missing[:5]))
        text = f"{len(missing)} changes were never delivered: {some}"
        return [Violation(Rule.LOST, text)] if missing else []


class KeyOrder(Generic[P]):
    """The last range and number of each key: order by key without a list of written changes.

    ``follows(one, other)`` says whether the range ``other`` goes on with keys of ``one``.
    """

    def __init__(self, follows: Callable[[P, P], bool] = lambda *_: True) -> None:
        self._follows = follows
        self._last: dict[Hashable, tuple[P, int]] = {}

    def next(self, key: Hashable, place: P, number: int) -> Iterator[Violation]:
        """Take the next change of a key that has not come before: numbers never fall."""
        home, last = self._last.get(key, (place, number))
        if place != home and not self._follows(home, place):
            yield Violation(Rule.RANGE, f"key {key} came in {home} and in {place}")
        if number < last:
            yield Violation(Rule.ORDER, f"{number} of key {key} came in {place} after {last}")
        self._last[key] = place, number


class TenureCheck(NamedTuple):
    """``again`` is how many of the changes had been given before."""

    again: int
    problems: Sequence[Violation]


class Tenures:
    """What the owners of ranges were given, one tenure after the other.

    With ``after_batches``, an owner begins only where some batch was done, which is where
    checkpoints are.
    """

    def __init__(self, *, repeats: int | None = None, after_batches: bool = False) -> None:
        self._repeats = repeats
        self._after_batches = after_batches
        self._reached: Counter[str] = Counter()
        self._last: dict[tuple[str, Hashable], int] = {}
        self._ends: dict[str, set[int]] = defaultdict(lambda: {0})

    def reached(self, range_id: str) -> int:
        return self._reached[range_id]

    def batch_done(self, range_id: str, last: int) -> None:
        self._ends[range_id].add(last)

    def given(self, range_id: str, tenure: Hashable, first: int, last: int) -> TenureCheck:
        """Take what an owner was given: the changes of a range from ``first`` to ``last``."""
        reached = self._reached[range_id]
        again = max(0, min(last, reached) - first + 1)
        before = self._last.get((range_id, tenure))
        if before is None:
            problems = list(self._begun(range_id, first, reached))
        elif first != before + 1:
            text = f"{range_id}: {first} came after {before}, to one owner"
            problems = [Violation(Rule.GAP, text)]
        else:
            problems = []
        self._last[range_id, tenure] = last
        self._reached[range_id] = max(reached, last)
        return TenureCheck(again, problems)

    def _begun(self, range_id: str, first: int, reached: int) -> Iterator[Violation]:
        again = reached - first + 1
        if again < 0:
            text = f"{range_id}: an owner began at {first}, and {reached} had been reached"
            yield Violation(Rule.GAP, text)
        if self._repeats is not None and again > self._repeats:
            text = f"{range_id}: {again} changes came again at {first}, {self._repeats} may"
            yield Violation(Rule.REPEATED, text)
        if self._after_batches and first - 1 not in self._ends[range_id]:
            text = f"{range_id}: an owner began at {first}, behind no batch that was done"
            yield Violation(Rule.REPEATED, text)


class _Epochs:
    """The newest epoch under which a batch of each range has begun."""

    def __init__(self) -> None:
        self._newest: Counter[str] = Counter()

    def begun(self, x: Delivery) -> Iterator[Violation]:
        newest = self._newest[x.range_id]
        if x.begins_batch and x.epoch < newest:
            yield Violation(Rule.EPOCH, f"{x} began although epoch {newest} had begun")
        self._newest[x.range_id] = max(newest, x.epoch)


class Checkpoints:
    """How far each range is known to be done. Positions are numbers that grow along a range."""

    def __init__(self) -> None:
        self._positions: Counter[str] = Counter()

    def position(self, range_id: str) -> int:
        return self._positions[range_id]

    @property
    def furthest(self) -> int | None:
        """The position that is furthest on, whatever the range."""
        return max(self._positions.values(), default=None)

    def stored(
        self, range_id: str, position: int, passed: Iterable[T], done: Container[T]
    ) -> Iterator[Violation]:
        """Take a checkpoint that passes over some changes; they must be among what is done."""
        first = self._positions[range_id]
        if position < first:
            text = f"the checkpoint of {range_id} went back from {first} to {position}"
            yield Violation(Rule.CHECKPOINT_BACK, text)
        for change in passed:
            if change not in done:
                text = f"the checkpoint of {range_id} passed over {change}, not yet done"
                yield Violation(Rule.CHECKPOINT_AHEAD, text)
        self._positions[range_id] = position

    def moved(self, range_id: str, position: int) -> None:
        """A person has put it there."""
        self._positions[range_id] = position


class Difference(NamedTuple, Generic[T]):
    """``extra`` says how often something is there beyond what was wanted."""

    missing: Counter[T]
    extra: Counter[T]


def difference(wanted: Iterable[T], found: Iterable[T]) -> Difference[T]:
    """Compare what must be there, each as often as it is wanted, with what is."""
    one, other = Counter(wanted), Counter(found)
    return Difference(missing=one - other, extra=other - one)
