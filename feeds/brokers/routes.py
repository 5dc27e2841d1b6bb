"""Which broker to ask about which partition, as one topology has it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from msgspec.structs import replace

from changefeed.feeds.brokers.protocol import PartitionInfo, Topology
from changefeed.feeds.errors import FeedUnavailable, RangeUnknown
from changefeed.feeds.eventlog.ids import part_in
from changefeed.feeds.feed import FeedRange, RangeId

NEWEST = 2**31
"""An era after all that there are: asked for what is since then, brokers name the newest."""
Place = tuple[int, int]
"""A part, counted from 0, and a virtual part."""


class Routes:
    """A topology with what clients look up in it; ``scheme`` is http or https."""

    def __init__(self, topology: Topology, scheme: str) -> None:
        self.topology = topology
        self._scheme = scheme
        self._urls = {x.name: f"{scheme}://{x.address}" for x in topology.brokers}

    def with_older(self, known: "Routes") -> "Routes":
        """Add what an earlier topology has of eras that this one was asked for without."""
        assert known.topology.catalog <= self.topology.catalog, (
            f"catalog {known.topology.catalog} is newer than {self.topology.catalog}"
        )
        first = min((x.era for x in self.topology.partitions), default=0)
        older = (x for x in known.topology.partitions if x.era < first)
        partitions = (*older, *self.topology.partitions)
        return Routes(replace(self.topology, partitions=partitions), self._scheme)

    @property
    def identity(self) -> str:
        return self.topology.identity

    @property
    def urls(self) -> Sequence[str]:
        return tuple(self._urls.values())

    @cached_property
    def by_id(self) -> Mapping[RangeId, PartitionInfo]:
        return {x.range.id: x for x in self.topology.partitions}

    @cached_property
    def children(self) -> Mapping[RangeId, Sequence[FeedRange]]:
        """The ranges that go on with the keys of each, of those that have such."""
        found: dict[RangeId, list[FeedRange]] = {}
        for x in self.topology.partitions:
            for parent in x.range.parents:
                found.setdefault(parent, []).append(x.range)
        return found

    @cached_property
    def _open(self) -> Mapping[Place, PartitionInfo]:
        return {
            (x.part, virtual): x
            for x in self.topology.partitions
            if self.is_open(x)
            for virtual in range(x.low, x.high + 1)
        }

    def is_open(self, partition: PartitionInfo) -> bool:
        """Whether it takes records: it is of the newest era."""
        return partition.era == self.topology.era

    def partition(self, wanted: RangeId) -> PartitionInfo:
        found = self.by_id.get(wanted)
        if found is None:
            raise RangeUnknown(wanted)
        return found

    def holding(self, wanted: RangeId) -> PartitionInfo:
        """Return a partition, or the one that a part belongs to."""
        part = part_in(wanted)
        found = self.partition(wanted if part is None else part[0])
        if part is not None and not found.low <= part[1] <= part[2] <= found.high:
            raise RangeUnknown(wanted)
        return found

    def open_at(self, place: Place) -> PartitionInfo:
        """Return the partition that takes the keys of a place."""
        found = self._open.get(place)
        if found is None:
            raise FeedUnavailable(
                f"no partition of {self.topology.collection!r} is open for part "
                f"{place[0] + 1}: no broker has taken it yet"
            )
        return found

    def to_write(self, partition: PartitionInfo) -> str:
        """Return the URL of the broker that takes its records, empty if none does now."""
        return self._urls.get(partition.broker, "") if self.is_open(partition) else ""

    def home(self, partition: PartitionInfo) -> str:
        """Return the broker that takes its keys now, or its writer where none does."""
        now = self._open.get((partition.part, partition.low), partition)
        return now.broker

    def to_read(self, partition: PartitionInfo) -> Sequence[str]:
        """Return the URLs of brokers in the order in which to ask them.

        Any can serve any partition; who writes one, or is its home, has it in memory.
        """
        return self._known((self.home(partition), partition.broker, *self._urls))

    def _known(self, names: Iterable[str]) -> Sequence[str]:
        found = (self._urls.get(x) for x in names)
        return tuple(dict.fromkeys(x for x in found if x))
