"""The catalog of a cluster: its collections, eras, brokers and partitions. Frozen.

It is one object, ``catalog``: eight hexadecimal digits (the CRC-32 of what follows), a line
feed, and JSON. To change it is to replace the version that was read; where that is not there
any more, somebody else was quicker. ``number`` counts the changes.

The era is the cluster's: one for all collections. The partitions of the newest era are open,
until it is closed and the next one opens. Where they ended may be known later.
"""

import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal

import msgspec

from changefeed.feeds.brokers.decoding import Undecodable, from_json
from changefeed.feeds.brokers.errors import ClusterRefused, CollectionUnknown
from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.eventlog.hashing import VIRTUAL_PARTS
from changefeed.feeds.eventlog.ids import range_id
from changefeed.feeds.feed import RangeId

FORMAT = 5
"""The only format that is read and written. Lower numbers were never released."""
MAX_SECONDS = 100 * 366 * 86400
"""The longest that a collection may keep its records for, if not for ever: a century."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cluster.json`` says, created once. ``identity`` has 32 hexadecimal digits."""

    identity: str
    format: int = FORMAT


class Partition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A part with an interval of virtual parts in one era, both ends included.

    ``broker`` writes it while its era is open; its records lie in that broker's row of that
    era. ``last`` is the last sequence once the era is over and that could be read from the
    row, ``None`` before; ``stored`` (bytes) and ``written_us`` (of the last flush) are known
    from then on. Sequences up to ``start`` are deleted; ``gone`` are their bytes.
    """

    era: int
    part: int
    low: int
    high: int
    broker: str
    last: int | None = None
    start: int = 0
    stored: int = 0
    written_us: int = 0
    gone: int = 0

    @property
    def id(self) -> RangeId:
        """Parts count from 1 in ids, as in the event log: the first is ``p01``."""
        return _id(self.era, self.part, self.low, self.high)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker writes in one era: ``wal/<era>/<broker>/<n>``, from 1 without gaps.

    ``sealed_at`` is the number of its seal, once the era is closed. Objects below
    ``kept_from`` are deleted.
    """

    broker: str
    incarnation: str
    address: str = ""
    sealed_at: int | None = None
    kept_from: int = 1


class Era(msgspec.Struct, frozen=True, kw_only=True):
    """A generation of partitions, and a row for each of its brokers.

    While it is ending, ``planned`` are the rows of the era that follows.
    """

    number: int
    began_us: int
    state: Literal["open", "ending", "closed"] = "open"
    rows: tuple[Row, ...] = ()
    planned: tuple[Row, ...] = ()

    def row(self, broker: str) -> Row | None:
        return next((x for x in self.rows if x.broker == broker), None)


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """A logical topic or table.

    ``cuts`` says for each part where its intervals of virtual parts begin, the first at 0:
    the shape that the next era's partitions have. ``retain_seconds`` and ``retain_bytes``
    are ``None`` where nothing is deleted for that reason.
    """

    name: str
    identity: str
    parts: int
    created_us: int
    cuts: tuple[tuple[int, ...], ...]
    retain_seconds: float | None = None
    retain_bytes: int | None = None
    partitions: tuple[Partition, ...] = ()

    @property
    def retain_us(self) -> int | None:
        """How long records are kept, in microseconds. A catalog may say more than may be."""
        if self.retain_seconds is None:
            return None
        return int(min(self.retain_seconds, MAX_SECONDS) * 1e6)

    def shape(self) -> Iterator[tuple[int, int, int]]:
        """Yield part, low and high of the partitions that an era of this shape has."""
        for part, lows in enumerate(self.cuts):
            ends = [*(x - 1 for x in lows[1:]), VIRTUAL_PARTS - 1]
            for low, high in zip(lows, ends, strict=True):
                yield part, low, high

    def open_partitions(self) -> tuple[Partition, ...]:
        """Return those of the newest era. One that was created as an era ended has none."""
        newest = self.partitions[-1].era if self.partitions else 0
        return tuple(x for x in self.partitions if x.era == newest)

    def partition(self, wanted: RangeId) -> Partition:
        """Return a partition by its id; raise ``RangeUnknown``."""
        found = next((x for x in self.partitions if x.id == wanted), None)
        if found is None:
            raise RangeUnknown(wanted)
        return found


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know of a cluster at one moment.

    ``members`` are the names of brokers that may live: who does, their signs of life say.
    """

    number: int
    identity: str
    format: int = FORMAT
    members: tuple[str, ...] = ()
    eras: tuple[Era, ...] = ()
    collections: tuple[Collection, ...] = ()

    @property
    def era(self) -> Era | None:
        """The newest era: open or ending. ``None`` before the first broker."""
        return self.eras[-1] if self.eras else None

    def by_name(self) -> Mapping[str, Collection]:
        return {x.name: x for x in self.collections}

    def collection(self, name: str) -> Collection:
        """Return a collection by its name; raise ``CollectionUnknown``."""
        found = self.by_name().get(name)
        if found is None:
            raise CollectionUnknown(name, tuple(x.name for x in self.collections))
        return found

    def era_numbered(self, number: int) -> Era:
        return next(x for x in self.eras if x.number == number)


def first_catalog(cluster: Cluster) -> Catalog:
    """Return what the catalog is before there is any: number 0, which is never stored."""
    return Catalog(number=0, identity=cluster.identity)


def encode_catalog(catalog: Catalog) -> bytes:
    assert catalog.number > 0, "catalog 0 is what there is before one is stored"
    body = msgspec.json.encode(catalog)
    return b"%08x\n" % zlib.crc32(body) + body


def decode_catalog(data: bytes, identity: str) -> Catalog:
    """Read a catalog; refuse one that is damaged, of another cluster, or of another format."""
    what = "the catalog"
    body = checked(data, what)
    try:
        header = from_json(body, _Header)
    except Undecodable as error:
        raise ClusterRefused(_damaged(what, str(error))) from error
    if header.identity != identity:
        raise ClusterRefused(
            f"{what} is of another cluster ({header.identity[:8]}) than this one "
            f"({identity[:8]}): restore the store from one copy"
        )
    require_format(header.format, what)
    try:
        return from_json(body, Catalog)
    except Undecodable as error:
        raise ClusterRefused(_damaged(what, str(error))) from error


def require_format(found: int, what: str) -> None:
    if found == FORMAT:
        return
    advice = "upgrade changefeed-host" if found > FORMAT else "begin anew in another place"
    raise ClusterRefused(
        f"{what} has format {found}, and this version of changefeed-host reads format "
        f"{FORMAT} only: {advice}"
    )


def checked(data: bytes, what: str) -> bytes:
    """Return what follows a checksum in eight digits, if it is what was written."""
    head, _, body = data.partition(b"\n")
    if head != b"%08x" % zlib.crc32(body):
        raise ClusterRefused(_damaged(what, "its checksum is wrong"))
    return body


def _damaged(what: str, why: str) -> str:
    return (
        f"{what} of the cluster is not what was written ({why}): restore it from a copy of "
        f"the store"
    )


class _Header(msgspec.Struct):
    identity: str
    format: int


@lru_cache(65_536)
def _id(era: int, part: int, low: int, high: int) -> RangeId:
    return range_id(era=era, part=part + 1, low=low, high=high)
