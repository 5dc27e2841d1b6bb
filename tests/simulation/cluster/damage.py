"""Objects of rows that show a flipped byte for a while, and who may be told so."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.names import number_of
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.format.flush import decode_header
from changefeed.log.format.pack import Place, header_bytes
from tests.simulation.probes import BrokerProbe
from tests.simulation.progress import Violation

if TYPE_CHECKING:
    from .world import World

_GRACE = 15.0
"""An answer may be as late as this after an object was restored, in seconds."""


class _Hit(NamedTuple):
    """``of`` is the partition whose records were hit, ``None`` for all of the row."""

    era: int
    broker: str
    of: tuple[str, RangeId] | None


class Damage:
    """Flips bytes and restores them. Only what lies there may be said to be damaged."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._until: dict[str, tuple[_Hit, float]] = {}

    async def flip(self) -> None:
        """Damage an object of a row, and restore it after a while."""
        world = self._world
        objects, random = world.objects, world.random
        rows = [x for x in objects.keys if x.startswith("wal/") and x not in objects.damaged]
        if not rows:
            return
        key = random.choice(rows[-30:])
        whole = objects.whole(key)
        place = random.randrange(len(whole))
        hit = self._hit(key, whole, place)
        self._until[key] = hit, float("inf")
        objects.flip(key, place)
        world.tell(f"damage {key} at {place} of {len(whole)}: {hit.of or 'its header'}")
        await asyncio.sleep(random.choice([3.0, 10.0, 30.0]))
        objects.restore(key)
        self._until[key] = hit, world.loop.time() + _GRACE
        world.tell(f"restore {key}")

    def _hit(self, key: str, whole: bytes, place: int) -> _Hit:
        _, number, broker, _ = key.split("/")
        era, columns = int(number), header_bytes(whole)
        at = Place(era, broker, number_of(key) or 0)
        header = decode_header(whole, self._world.guard.newest.identity, at)
        for section in header.sections:
            begin = columns + section.offset
            if begin <= place < begin + section.bytes:
                return _Hit(era, broker, (section.collection, section.partition))
        return _Hit(era, broker, None)

    def told(self, collection: str, partition: RangeId, error: RangeDamaged) -> None:
        """See that a partition that is said to be damaged is."""
        self._world.probes.hit(BrokerProbe.DAMAGE_SEEN)
        of = ranges_of(self._world.guard.newest, collection).partition(partition)
        now = self._world.loop.time()
        here = {_Hit(of.era, of.broker, x) for x in (None, (collection, partition))}
        if any(hit in here and until >= now for hit, until in self._until.values()):
            return
        raise Violation(f"{partition} is said to be damaged, and is not: {error}") from error
