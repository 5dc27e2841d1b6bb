"""The partitions of a collection: they follow from its shape and from the brokers of an era.

Nothing of this is stored, so a catalog of thousands of partitions in a hundred eras has some
kilobytes. Brokers and their clients compute the same. Who gets which partitions is frozen,
since the records of each lie in its broker's row.

In an era each broker has a run of the partitions in the order of part and virtual parts, floor
or ceil of the average long. The longer runs begin at a broker that the identity of the
collection names, and go round: so another collection changes nothing of this one.
"""

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import groupby

import msgspec

from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.log.catalog.catalog import Catalog, Collection, Cuts
from changefeed.log.hashing import VIRTUAL_PARTS
from changefeed.log.ids import era_in, range_id


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A part with an interval of virtual parts in one era, both ends included.

    ``part`` counts from 0, as the hash does; ids count from 1. ``broker`` takes records while
    the era is the newest; they lie in its row of that era.
    """

    era: int
    part: int
    low: int
    high: int
    broker: str

    @property
    def id(self) -> RangeId:
        return _id(self.era, self.part, self.low, self.high)

    def as_range(self, parents: Iterable["Partition"] = ()) -> FeedRange:
        """Bounds are those of the event log: a part and a virtual part, as texts that sort."""
        part = self.part + 1
        return FeedRange(
            id=self.id,
            low=f"p{part:02}.v{self.low:03x}",
            high=f"p{part:02}.v{self.high + 1:03x}",
            parents=tuple(x.id for x in parents),
            generation=(self.era, 0),
        )


class EraShape(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """What the partitions of an era follow from. ``cuts``: ``None`` as in the era before."""

    era: int
    brokers: tuple[str, ...]
    cuts: Cuts | None = None


def eras_of(catalog: Catalog, collection: Collection) -> tuple[EraShape, ...]:
    """Return the eras in which a collection has partitions."""
    return tuple(
        EraShape(
            era=x.number,
            brokers=tuple(row.broker for row in x.rows),
            cuts=x.reshaped.get(collection.name),
        )
        for x in catalog.eras
        if x.number >= collection.since
    )


def run_lengths(partitions: int, brokers: int, skip: int = 0) -> list[int]:
    """Return how many partitions each broker gets, in order.

    The longer runs begin at the broker number ``skip``, counted from 0, and go round.
    """
    least, more = divmod(partitions, brokers)
    lengths = [least + ((n - skip) % brokers < more) for n in range(brokers)]
    assert sum(lengths) == partitions, f"{lengths} are not {partitions} partitions"
    assert max(lengths) - min(lengths) <= 1, f"{lengths} are not even"
    return lengths


class Ranges:
    """The partitions of a collection in all of its eras, which are in order."""

    def __init__(self, identity: str, parts: int, eras: Sequence[EraShape]) -> None:
        self.eras = range(eras[0].era, eras[-1].era + 1) if eras else range(0)
        self._identity = identity
        self._shapes: list[EraShape] = []
        cuts: Cuts = ((0,),) * parts
        for x in eras:
            cuts = cuts if x.cuts is None else x.cuts
            self._shapes.append(EraShape(era=x.era, brokers=x.brokers, cuts=cuts))
        self.cuts = cuts
        """The shape of the newest era."""
        assert [x.era for x in eras] == [*self.eras], f"eras follow each other: {eras}"

    @property
    def newest(self) -> int:
        """The newest era; 0 if there is none."""
        return self.eras[-1] if self.eras else 0

    @property
    def open(self) -> Sequence[Partition]:
        return self.in_era(self.newest)

    @cached_property
    def open_by_place(self) -> Mapping[tuple[int, int], Partition]:
        """What takes the keys of each place: a part, counted from 0, and a virtual part."""
        return {(x.part, virtual): x for x in self.open for virtual in range(x.low, x.high + 1)}

    def all(self) -> Iterator[Partition]:
        """Yield those of all eras, the oldest first."""
        for era in self.eras:
            yield from self.in_era(era)

    def in_era(self, era: int) -> Sequence[Partition]:
        """Return the partitions of an era, in the order of parts and virtual parts."""
        return self._in(era).partitions

    def partition(self, wanted: RangeId) -> Partition:
        """Return a partition by its id; raise ``RangeUnknown``."""
        found = self._in(era_in(wanted)).by_id.get(wanted)
        if found is None:
            raise RangeUnknown(wanted)
        return found

    def has(self, wanted: RangeId) -> bool:
        return wanted in self._in(era_in(wanted)).by_id

    def parents(self, child: Partition) -> Sequence[Partition]:
        return self.sharing_keys(child, child.era - 1)

    def children(self, parent: Partition) -> Sequence[Partition]:
        return self.sharing_keys(parent, parent.era + 1)

    def child_ranges(self, parent: Partition) -> tuple[FeedRange, ...]:
        """Return the ranges that go on with the keys of one."""
        return tuple(map(self.as_range, self.children(parent)))

    def home(self, of: Partition) -> Partition:
        """Return the partition that has its first keys now: its broker has it in memory."""
        return next(iter(self.sharing_keys(of, self.newest)), of)

    def sharing_keys(self, of: Partition, era: int) -> Sequence[Partition]:
        """Return the partitions of an era that hold keys of another's partition."""
        there = self._in(era).by_part.get(of.part, ())
        first = bisect_left(there, of.low, key=lambda x: x.high)
        end = bisect_left(there, of.high + 1, key=lambda x: x.low)
        return there[first:end]

    def as_range(self, partition: Partition) -> FeedRange:
        return partition.as_range(self.parents(partition))

    def _in(self, era: int) -> "_InEra":
        if era not in self.eras:
            return _NONE
        if era == self.newest:
            return self._in_newest
        return _in_era(self._identity, self._shapes[era - self.eras[0]])

    @cached_property
    def _in_newest(self) -> "_InEra":
        """That of the newest era: asked for with each batch, and its shape may be large."""
        return _in_era(self._identity, self._shapes[-1])


class RangesCache:
    """The partitions of all collections of the newest catalog, made when they are asked for."""

    def __init__(self, newest: Callable[[], Catalog]) -> None:
        self._newest = newest
        self._of = newest()
        self._kept: dict[str, Ranges] = {}

    def of(self, name: str) -> Ranges:
        """Raise ``FeedRefused``."""
        newest = self._newest()
        if newest is not self._of:
            self._of, self._kept = newest, {}
        if name not in self._kept:
            self._kept[name] = ranges_of(newest, name)
        return self._kept[name]


def ranges_of(catalog: Catalog, name: str) -> Ranges:
    """Return the partitions of a collection; raise ``FeedRefused``."""
    found = catalog.collection(name)
    return Ranges(found.identity, found.parts, eras_of(catalog, found))


class _InEra:
    """Partitions of one era, by their ids, and by part in the order of their keys."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        self.partitions = partitions
        self.by_id: Mapping[RangeId, Partition] = {x.id: x for x in partitions}
        self.by_part: Mapping[int, Sequence[Partition]] = {
            part: tuple(there) for part, there in groupby(partitions, lambda x: x.part)
        }


_NONE = _InEra(())


@lru_cache(128)
def _in_era(identity: str, shape: EraShape) -> _InEra:
    """Divide the intervals of an era among its brokers."""
    assert shape.brokers, f"era {shape.era} has no brokers"
    intervals = [*_intervals(shape.cuts or ())]
    skip = zlib.crc32(identity.encode()) % len(shape.brokers)
    lengths = run_lengths(len(intervals), len(shape.brokers), skip)
    owners = (x for x, y in zip(shape.brokers, lengths, strict=True) for _ in range(y))
    return _InEra(
        tuple(
            Partition(era=shape.era, part=part, low=low, high=high, broker=owner)
            for (part, low, high), owner in zip(intervals, owners, strict=True)
        )
    )


def _intervals(cuts: Cuts) -> Iterator[tuple[int, int, int]]:
    """Yield part, low and high of the partitions that an era of this shape has."""
    for part, lows in enumerate(cuts):
        ends = [*(x - 1 for x in lows[1:]), VIRTUAL_PARTS - 1]
        for low, high in zip(lows, ends, strict=True):
            yield part, low, high


@lru_cache(65_536)
def _id(era: int, part: int, low: int, high: int) -> RangeId:
    return range_id(era=era, part=part + 1, low=low, high=high)
