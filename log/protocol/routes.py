"""Which broker to ask about which partition, as one topology has it. Pure."""

from collections.abc import Sequence
from functools import cached_property

from changefeed.feeds.errors import FeedUnavailable, RangeUnknown
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.log.catalog.ranges import Partition, Ranges
from changefeed.log.ids import part_in
from changefeed.log.protocol.messages import Topology

Place = tuple[int, int]
"""A part, counted from 0, and a virtual part."""


class Routes:
    """A topology with what clients look up in it; ``scheme`` is http or https."""

    def __init__(self, topology: Topology, scheme: str) -> None:
        self.topology = topology
        self.partitions = Ranges(topology.identity, topology.parts, topology.eras)
        self._urls = {x.name: f"{scheme}://{x.address}" for x in topology.brokers}

    @property
    def identity(self) -> str:
        return self.topology.identity

    @property
    def urls(self) -> Sequence[str]:
        return tuple(self._urls.values())

    @cached_property
    def ranges(self) -> Sequence[FeedRange]:
        """The ranges of all eras that are not gone, the oldest first."""
        kept_era, found = self.topology.kept_era, self.partitions
        return [found.as_range(x) for x in found.all() if x.era >= kept_era]

    def children(self, name: RangeId) -> Sequence[FeedRange]:
        """Return the ranges that go on with the keys of one."""
        return self.partitions.child_ranges(self.partition(name))

    def is_open(self, partition: Partition) -> bool:
        """Whether it takes records: it is of the newest era."""
        return partition.era == self.topology.era

    def partition(self, wanted: RangeId) -> Partition:
        """Raise ``RangeUnknown``."""
        return self.partitions.partition(wanted)

    def holding(self, wanted: RangeId) -> Partition:
        """Return a partition, or the one that a part belongs to."""
        part = part_in(wanted)
        found = self.partition(wanted if part is None else part[0])
        if part is not None and not found.low <= part[1] <= part[2] <= found.high:
            raise RangeUnknown(wanted)
        return found

    def open_at(self, place: Place) -> Partition:
        """Return the partition that takes the keys of a place."""
        found = self.partitions.open_by_place.get(place)
        if found is None:
            raise FeedUnavailable(
                f"no partition of {self.topology.collection!r} is open for part "
                f"{place[0] + 1}: no broker has taken it yet"
            )
        return found

    def url_of(self, broker: str) -> str:
        """Return the URL of a broker of the newest era, empty if it is none."""
        return self._urls.get(broker, "")

    def home(self, partition: Partition) -> str:
        """Return the broker that takes its keys now, or its writer where none does."""
        return self.partitions.home(partition).broker

    def to_read(self, partition: Partition) -> Sequence[str]:
        """Return the URLs of brokers in the order in which to ask them.

        Any can serve any partition; who writes one, or is its home, has it in memory.
        """
        names = (self.home(partition), partition.broker, *self._urls)
        found = (self._urls.get(x) for x in names)
        return tuple(dict.fromkeys(x for x in found if x))
