"""A fleet at the level of its leases: three hosts and two kinds of feed, driven at random.

Hosts see listings that are torn, and of any age; some of their writes are applied long after
they gave up waiting; they die between any two; owners split their ranges, operators merge them
and die half-way, leases are deleted by hand, and hosts of .NET do what they do. Each feed holds
one log for each key. What is checked: each key is read in order, nothing is left out, nothing
is read twice, and all is read in the end.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, Protocol

from msgspec.structs import replace

from changefeed.feeds.feed import Child, FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.keymap import KeyMap, NewLease
from changefeed.leases.lease import Lease, RangeEnd, Version

KEYS = 12
_STEPS = 600
_LAST_STEPS = 6000
_PATIENCE = 4


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What befalls the fleet: how probable it is."""

    torn: float = 0.08
    late: float = 0.15
    by_hand: float = 0.0
    dotnet: bool = False
    somewhere: bool = False
    """Whether the fleet begins at a time, and not at the beginning."""


def bound(key: int) -> str:
    return f"{key:02d}"


def keys_of(found: FeedRange) -> range:
    return range(int(found.low), int(found.high))


def spanning(name: str, low: int, high: int, generation: tuple[int, int]) -> FeedRange:
    return FeedRange(id=RangeId(name), low=bound(low), high=bound(high), generation=generation)


def _start(place: int) -> Position:
    return Position(str(place))


class Feed(Protocol):
    """Each key has events 0, 1, ...; a position is that of the next."""

    cuts: bool

    def listed(self) -> Sequence[FeedRange]: ...
    def read(self, found: FeedRange, at: int) -> Sequence[tuple[int, int]] | RangeEnd: ...
    def sub_range(self, found: FeedRange, low: int, high: int, depth: int) -> FeedRange: ...
    def one(self, found: Sequence[FeedRange]) -> bool: ...
    def somewhere(self) -> Sequence[tuple[FeedRange, int, int]]: ...
    def last(self) -> int: ...
    def change(self) -> None: ...


@dataclass
class _Partition:
    range: FeedRange
    era: int
    children: list[FeedRange] | None = None


class LogFeed:
    """Two events for each key in each era; an era closes the partitions of the last."""

    def __init__(self, random: Random) -> None:
        self.cuts = True
        self._random = random
        self._partitions: dict[RangeId, _Partition] = {}
        self._era = 0
        self.change()

    def change(self) -> None:
        closing = [x for x in self._partitions.values() if x.children is None]
        some = {self._random.randrange(1, KEYS) for _ in range(self._random.randrange(4))}
        for low, high in pairwise([0, *sorted(some), KEYS]):
            name = f"e{self._era}.{low}"
            opened = spanning(name, low, high, (self._era, 0))
            self._partitions[opened.id] = _Partition(opened, self._era)
            for x in closing:
                if x.range.shares_keys_with(opened):
                    x.children = [*(x.children or ()), opened]
        self._era += 1

    def listed(self) -> Sequence[FeedRange]:
        return [x.range for x in self._partitions.values()]

    def read(self, found: FeedRange, at: int) -> Sequence[tuple[int, int]] | RangeEnd:
        partition = self._partitions[found.of or found.id]
        if at < 2:
            return [(key, partition.era * 2 + at) for key in keys_of(found)]
        if partition.children is None:
            return []
        children = [x for x in partition.children if x.shares_keys_with(found)]
        return RangeEnd(children=tuple(Child(range=x, start=_start(0)) for x in children))

    def sub_range(self, found: FeedRange, low: int, high: int, depth: int) -> FeedRange:
        whole = found.of or found.id
        generation = (found.generation[0], found.generation[1] + depth)
        part = spanning(f"{whole}~{low}-{high}", low, high, generation)
        return dataclasses.replace(part, of=whole)

    def one(self, found: Sequence[FeedRange]) -> bool:
        return len({x.of for x in found}) == 1 and found[0].of is not None

    def somewhere(self) -> Sequence[tuple[FeedRange, int, int]]:
        """Choose a moment: the ranges of then, where to begin them, the first event there."""
        era = self._random.randrange(self._era)
        found = [x.range for x in self._partitions.values() if x.era == era]
        places = [self._random.randrange(3) for _ in found]
        return [(x, at, era * 2 + at) for x, at in zip(found, places, strict=True)]

    def last(self) -> int:
        return self._era * 2 - 1


class CosmosFeed:
    """Physical ranges that are split and merged; one that is gone ends where its reader is."""

    def __init__(self, random: Random) -> None:
        self.cuts = True
        self._random = random
        self._physical = [spanning("0", 0, KEYS, (0, 0))]
        self._made = 1
        self._events = 2

    def change(self) -> None:
        self._events += 1
        place = self._random.randrange(len(self._physical))
        found = self._physical[place]
        low, high = int(found.low), int(found.high)
        if self._random.random() < 0.6 and high - low > 1:
            middle = self._random.randrange(low + 1, high)
            depth = (found.generation[0] + 1, 0)
            halves = [self._fresh(low, middle, depth), self._fresh(middle, high, depth)]
            self._physical[place : place + 1] = halves
        elif place + 1 < len(self._physical):
            other = self._physical[place + 1]
            depth = (found.generation[0] + other.generation[0] + 1, 0)
            self._physical[place : place + 2] = [self._fresh(low, int(other.high), depth)]

    def _fresh(self, low: int, high: int, generation: tuple[int, int]) -> FeedRange:
        self._made += 1
        return spanning(str(self._made), low, high, generation)

    def listed(self) -> Sequence[FeedRange]:
        return list(self._physical)

    def read(self, found: FeedRange, at: int) -> Sequence[tuple[int, int]] | RangeEnd:
        holders = [x for x in self._physical if x.shares_keys_with(found)]
        alone = "-" in found.id and len(holders) == 1
        if alone or any(x.id == found.id for x in holders):
            return [(key, at) for key in keys_of(found)] if at < self._events else []
        return RangeEnd(children=tuple(self._gone_on(x, found, at) for x in holders))

    def _gone_on(self, holder: FeedRange, found: FeedRange, at: int) -> Child:
        low, high = max(holder.low, found.low), min(holder.high, found.high)
        whole = (low, high) == (holder.low, holder.high)
        part = spanning(f"{low}-{high}", int(low), int(high), holder.generation)
        return Child(range=holder if whole else part, start=_start(at))

    def sub_range(self, found: FeedRange, low: int, high: int, depth: int) -> FeedRange:
        """One that has all keys of a physical range has its name, too."""
        generation = (found.generation[0], found.generation[1] + depth)
        bounds = bound(low), bound(high)
        names = [x.id for x in self._physical if (x.low, x.high) == bounds]
        return spanning(names[0] if names else "-".join(bounds), low, high, generation)

    def one(self, found: Sequence[FeedRange]) -> bool:
        holders = {y.id for x in found for y in self._physical if y.shares_keys_with(x)}
        return len(holders) == 1 and all("-" in x.id for x in found)

    def somewhere(self) -> Sequence[tuple[FeedRange, int, int]]:
        places = [self._random.randrange(self._events + 1) for _ in self._physical]
        return [(x, at, at) for x, at in zip(self._physical, places, strict=True)]

    def last(self) -> int:
        return self._events - 1


@dataclass
class Host:
    before: KeyMap | None = None
    view: KeyMap | None = None
    listed: frozenset[RangeId] = frozenset()
    held: dict[RangeId, Lease] = field(default_factory=dict)
    gaps: frozenset[int] = frozenset()
    waited: int = 0


class World:
    """One fleet, from its first host on."""

    def __init__(self, seed: int, trouble: Trouble) -> None:
        self._random = Random(seed)
        self._trouble = trouble
        of_cosmos = trouble.dotnet or seed % 2
        self.feed: Feed = CosmosFeed(self._random) if of_cosmos else LogFeed(self._random)
        for _ in range(self._random.randrange(4) if trouble.somewhere else 0):
            self.feed.change()
        self.store: dict[RangeId, Lease] = {}
        self.root: RangeEnd | None = None
        self._writes = 0
        self._late: list[Callable[[], object]] = []
        self._earlier: dict[RangeId, Lease] = {}
        self._by_hand: dict[RangeId, int] = {}
        self._hosts = [Host() for _ in range(3)]
        self._quiet = False
        self.done = [-1] * KEYS
        self.splits = self.merges = self.cleaned = self.deleted = self.foreign = 0

    def run(self) -> None:
        for _ in range(_STEPS):
            self._step(self._random.choice(self._hosts))
            self._now_and_then()
        self._quiet = True
        for write in self._late:
            write()
        for _ in range(_LAST_STEPS):
            self._step(self._random.choice(self._hosts))
            if self.is_read:
                break

    @property
    def is_read(self) -> bool:
        return all(x == self.feed.last() for x in self.done)

    def keymap(self) -> KeyMap:
        return KeyMap(self.store.values(), root=self.root, ranges=self.feed.listed())

    def _now_and_then(self) -> None:
        random = self._random.random
        if random() < 0.02:
            self.feed.change()
        if random() < 0.02 and not self._trouble.dotnet:
            self._merge()
        if random() < 0.04 and self._trouble.dotnet:
            self._dotnet()
        if random() < self._trouble.by_hand:
            open_ones = [x.range_id for x in self.store.values() if x.end is None]
            if open_ones:
                gone = self.store.pop(self._random.choice(open_ones))
                self._by_hand[gone.range_id] = gone.epoch
                self.deleted += 1
        if self._late and random() < 0.1:
            self._late.pop(self._random.randrange(len(self._late)))()

    # the store

    def _written(self, lease: Lease) -> Lease:
        self._writes += 1
        stored = replace(lease, version=Version(f"{self._writes:06d}"))
        self.store[lease.range_id] = stored
        return stored

    def _write(self, write: Callable[[], Lease | None]) -> Lease | None:
        """Apply a write now, or later than its writer waits for."""
        if not self._quiet and self._random.random() < self._trouble.late:
            self._late.append(write)
            return None
        return write()

    def _create(self, lease: Lease) -> Lease | None:
        return self._write(
            lambda: None if lease.range_id in self.store else self._written(lease)
        )

    def _replace(self, old: Lease, new: Lease, *, sure: bool = False) -> Lease | None:
        def write() -> Lease | None:
            return self._written(new) if self._is_stored(old) else None

        return write() if sure else self._write(write)

    def _delete(self, old: Lease) -> None:
        def write() -> None:
            if self._is_stored(old):
                del self.store[old.range_id]
                self.cleaned += 1

        self._write(write)

    def _is_stored(self, lease: Lease) -> bool:
        stored = self.store.get(lease.range_id)
        return stored is not None and stored.version == lease.version

    def _listing(self) -> Iterator[Lease]:
        """List all; some are left out, or shown twice, as they were and as they are."""
        random = self._random.random
        for x in list(self.store.values()):
            if not self._quiet and random() < self._trouble.torn:
                continue
            if not self._quiet and x.range_id in self._earlier and random() < 0.1:
                copies = [x, self._earlier[x.range_id]]
                self._random.shuffle(copies)
                yield from copies
            else:
                yield x
            self._earlier[x.range_id] = x

    # a host

    def _step(self, host: Host) -> None:
        what = self._random.random()
        if what < 0.3 or host.view is None:
            self._look(host)
        elif what < 0.55:
            self._reconcile(host)
        elif what < 0.7:
            self._acquire(host)
        elif what < 0.95:
            self._read(host)
        elif what < 0.97:
            host.held.clear()
            host.view = host.before = None

    def _look(self, host: Host) -> None:
        listed = self.feed.listed()
        host.before = host.view
        host.view = KeyMap(self._listing(), root=self.root, ranges=listed)
        kept = listed if isinstance(self.feed, LogFeed) else ()
        host.listed = frozenset(x.id for x in kept)
        gaps = host.view.gaps() if self.root else ()  # no host looks for any before that
        found = {n for x in gaps for n in range(int(x[0]), int(x[1]))}
        host.gaps = host.gaps & found if host.waited else frozenset(found)
        host.waited = host.waited + 1 if host.gaps else 0

    def _acquire(self, host: Host) -> None:
        assert host.view is not None
        before = _names(host.before.readable()) if host.before else set()
        found = [x for x in host.view.readable() if x.epoch or x.range_id in before]
        if not found:
            return
        lease = self._random.choice(found)
        start = host.view.start_of(lease)
        taken = replace(lease, epoch=lease.epoch + 1)
        if not lease.epoch and start is not None:
            taken = replace(taken, checkpoint=start)
        stored = self._replace(lease, taken)
        if stored is not None:
            host.held[lease.range_id] = stored

    def _reconcile(self, host: Host) -> None:
        """Do one of what two listings agree on."""
        if self.root is None:
            if not self.store:
                self.root = self._first_cut()
            return
        if host.view is None or host.before is None:
            return
        view, before = host.view, host.before
        due_before = {x.child.range.id for x in before.new_leases}
        over_before = _names(before.finished(host.listed))
        past_before = _names(before.superseded())
        todo: list[Callable[[], object]] = [
            *(_bound(self._come, x) for x in view.new_leases if x.child.range.id in due_before),
            *(
                _bound(self._delete, x)
                for x in view.finished(host.listed)
                if x.range_id in over_before
            ),
            *(_bound(self._delete, x) for x in view.superseded() if x.range_id in past_before),
        ]
        if host.gaps and host.waited >= _PATIENCE:
            todo += [_bound(self._create, x) for x in self._for_gaps(host)]
        if todo:
            self._random.choice(todo)()

    def _first_cut(self) -> RangeEnd:
        if self._trouble.somewhere:
            return self._cut_somewhere()
        listed = self.feed.listed()
        oldest = [x for x in listed if x.generation == min(y.generation for y in listed)]
        return RangeEnd(children=tuple(Child(range=x, start=_start(0)) for x in oldest))

    def _cut_somewhere(self) -> RangeEnd:
        children = []
        for found, at, event in self.feed.somewhere():
            children.append(Child(range=found, start=_start(at)))
            for key in keys_of(found):
                self.done[key] = event - 1
        return RangeEnd(children=tuple(children))

    def _come(self, due: NewLease) -> None:
        fresh = Lease(range=due.child.range, checkpoint=Checkpoint(due.child.start))
        if due.revived is None:
            self._create(fresh)
        else:
            old = due.revived
            self._replace(old, replace(fresh, epoch=old.epoch, renewals=old.renewals + 1))

    def _for_gaps(self, host: Host) -> Iterator[Lease]:
        for low, high in _runs(host.gaps):
            for x in self.feed.listed():
                part = range(max(low, int(x.low)), min(high, int(x.high)))
                if not part or (isinstance(self.feed, LogFeed) and x.generation != (0, 0)):
                    continue
                whole = part == keys_of(x)
                found = x if whole else self.feed.sub_range(x, part.start, part.stop, 0)
                yield Lease(range=found, checkpoint=Checkpoint(_start(0)))

    def _read(self, host: Host) -> None:
        if not host.held:
            return
        lease = host.held[self._random.choice(list(host.held))]
        if self._split(lease):
            del host.held[lease.range_id]
            return
        at = int(lease.position or "0")
        found = self.feed.read(lease.range, at)
        if isinstance(found, RangeEnd):
            self._replace(lease, _ended(lease, found))
            del host.held[lease.range_id]
        elif found:
            self._process(host, lease, at, found)

    def _process(
        self, host: Host, lease: Lease, at: int, found: Iterable[tuple[int, int]]
    ) -> None:
        """Read and checkpoint in one, or not at all."""
        further = replace(
            lease, checkpoint=Checkpoint(_start(at + 1)), renewals=lease.renewals + 1
        )
        stored = self._replace(lease, further, sure=True)
        if stored is None and self._lives_on(lease):
            stored = self._written(replace(further, epoch=lease.epoch + 1))
        if stored is None:
            del host.held[lease.range_id]
            return
        self._note(lease, found)
        host.held[lease.range_id] = stored

    def _lives_on(self, lease: Lease) -> bool:
        """Whether a lease was deleted by hand, and its owner, whom nobody has fenced, makes it
        again.
        """
        gone = lease.range_id not in self.store
        return gone and self._by_hand.get(lease.range_id) == lease.epoch

    def _note(self, lease: Lease, found: Iterable[tuple[int, int]]) -> None:
        again = self._trouble.by_hand or self._trouble.dotnet
        for key, event in found:
            if again and event <= self.done[key]:
                continue
            assert event == self.done[key] + 1, (
                f"key {key}: event {event} after {self.done[key]} by {lease}"
            )
            self.done[key] = event

    def _split(self, lease: Lease) -> bool:
        """Let the owner of a range split it, in one write."""
        low, high = int(lease.range.low), int(lease.range.high)
        wanted = not self._quiet and not self._trouble.dotnet and self._random.random() < 0.06
        if not wanted or high - low < 2:
            return False
        middle = self._random.randrange(low + 1, high)
        parts = [
            self.feed.sub_range(lease.range, *x, 1) for x in ((low, middle), (middle, high))
        ]
        start = lease.position or _start(0)
        end = RangeEnd(children=tuple(Child(range=x, start=start) for x in parts), by="split")
        self.splits += self._replace(lease, _ended(lease, end)) is not None
        return True

    # others

    def _merge(self) -> None:
        """Merge two ranges that are at one position, as an operator does: who may die between
        the two ends; then another lets the first go on.
        """
        parts = sorted(
            (x for x in self.store.values() if x.end is None), key=lambda x: x.range.low
        )
        for a, b in pairwise(parts):
            touching = a.range.high == b.range.low and a.position == b.position
            if not (touching and a.epoch and b.epoch and self.feed.one([a.range, b.range])):
                continue
            latest = max(a.range, b.range, key=lambda x: x.generation)
            merged = self.feed.sub_range(latest, int(a.range.low), int(b.range.high), 1)
            if merged.id not in self.store:
                self._merge_into(merged, a, b)
                return

    def _merge_into(self, merged: FeedRange, a: Lease, b: Lease) -> None:
        end = RangeEnd(
            children=(Child(range=merged, start=a.position or _start(0)),), by="merge"
        )
        first = self._replace(a, _paused(a), sure=True)
        second = self._replace(b, _paused(b), sure=True)
        assert first is not None
        assert second is not None
        ended = self._replace(first, _ended(first, end), sure=True)
        assert ended is not None
        if self._random.random() < 0.3:
            again = replace(first, renewals=ended.renewals + 1, paused=None)
            self._replace(ended, again, sure=True)
            self._replace(second, replace(second, paused=None), sure=True)
            return
        self._replace(second, _ended(second, end), sure=True)
        self.merges += 1

    def _dotnet(self) -> None:
        """Do what a host of .NET does with any lease, at once: read it, or go on behind it.

        It knows no ends. It creates children before it deletes what they come of, and may die
        between the two.
        """
        if not self.store:
            return
        lease = self._random.choice(list(self.store.values()))
        self.foreign += 1
        at = int(lease.position or "0")
        taken = self._written(replace(lease, epoch=lease.epoch + 1, stamp=1.0))
        found = self.feed.read(lease.range, at)
        if not isinstance(found, RangeEnd):
            if found:
                self._written(replace(taken, checkpoint=Checkpoint(_start(at + 1))))
                self._note(lease, found)
            return
        for x in found.children:
            foreign = dataclasses.replace(x.range, generation=(0, 0))
            if foreign.id not in self.store:
                self._written(Lease(range=foreign, checkpoint=Checkpoint(x.start), stamp=1.0))
        if self._random.random() < 0.8:
            del self.store[lease.range_id]


def _ended(lease: Lease, end: RangeEnd) -> Lease:
    return replace(lease, end=end, paused=None, renewals=lease.renewals + 1)


def _paused(lease: Lease) -> Lease:
    return replace(lease, epoch=lease.epoch + 1, paused="merging")


def _names(leases: Collection[Lease]) -> set[RangeId]:
    return {x.range_id for x in leases}


def _bound(do: Callable[[Any], object], x: Any) -> Callable[[], object]:
    return lambda: do(x)


def _runs(keys: Iterable[int]) -> Sequence[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for key in sorted(keys):
        if found and found[-1][1] == key:
            found[-1] = (found[-1][0], key + 1)
        else:
            found.append((key, key + 1))
    return found
