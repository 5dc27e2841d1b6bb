"""The catalog of a cluster: its eras and brokers, and collections beside it. Frozen.

It is one object, ``catalog``: eight hexadecimal digits (the CRC-32 of what follows), a line
feed, and JSON. To change it is to replace the version that was read; where that is not there
any more, somebody else was quicker. ``number`` counts the changes.

The era is the cluster's: one for all collections. The partitions of the newest era are open,
until it is closed and the next one opens. Which partitions there are is not stored: it follows
from the shape of a collection and the brokers of an era (``ranges``). Where they ended is
written in the rows of their brokers.
"""

import zlib
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.log.decoding import Undecodable, from_json
from changefeed.log.errors import no_collection

FORMAT: Final = 10
"""The only format that is read and written. Lower numbers were never released."""
MAX_SECONDS = 100 * 366 * 86400
"""The longest that a collection may keep its records for, if not for ever: a century."""


REMEMBERED_CHANGES: Final = 64
"""The ids of so many changes stand in a catalog, to settle a lost answer."""

Cuts = tuple[tuple[int, ...], ...]
"""For each part where its intervals of virtual parts begin, the first at 0."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cluster.json`` says, created once. ``identity`` has 32 hexadecimal digits."""

    identity: str
    format: int = FORMAT


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

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of it but its seal."""
        return self.sealed_at is not None and self.kept_from >= self.sealed_at


class Era(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A generation of partitions, and a row for each of its brokers.

    ``reshaped`` are the collections that have another shape than in the era before. While it
    is ending, ``planned`` are the rows of the era that follows.
    """

    number: int
    began_us: int
    state: Literal["open", "ending", "closed"] = "open"
    rows: tuple[Row, ...] = ()
    planned: tuple[Row, ...] = ()
    reshaped: Mapping[str, Cuts] = {}

    def row(self, broker: str) -> Row | None:
        return next((x for x in self.rows if x.broker == broker), None)


class Truncation(NamedTuple):
    """What retention took of a partition: sequences up to ``start``, and their bytes."""

    start: int
    bytes: int


class PlannedTruncation(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be gone of a collection soon, as ``Collection`` says it: with what is."""

    kept_era: int
    gone: Mapping[RangeId, Truncation]


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """A logical topic or table. It has partitions from the era ``since`` on.

    ``retain_seconds`` and ``retain_bytes`` are ``None`` where nothing is deleted for that
    reason. All records of eras before ``kept_era`` are gone, and ``gone`` says what is of that
    era and of later ones. ``cut`` is what is to be gone next: it may be taken back until then,
    and readers do not know of it. ``old_us`` is a stamp up to which records were found too old,
    as retention has come so far. ``revision`` counts its changes: it was created as 1.
    """

    name: str
    identity: str
    parts: int
    created_us: int
    since: int = 1
    revision: int = 1
    retain_seconds: float | None = None
    retain_bytes: int | None = None
    kept_era: int = 1
    gone: Mapping[RangeId, Truncation] = {}
    cut: PlannedTruncation | None = None
    old_us: int | None = None

    @property
    def retain_us(self) -> int | None:
        """How long records are kept, in microseconds. A catalog may say more than may be."""
        if self.retain_seconds is None:
            return None
        return int(min(self.retain_seconds, MAX_SECONDS) * 1e6)

    def truncation_of(self, partition: RangeId, era: int, last: int, stored: int) -> Truncation:
        """Return what is gone of a partition that ended, or has come, to ``last``."""
        if era < self.kept_era:
            return Truncation(last, stored)
        return self.gone.get(partition, _NOTHING)


_NOTHING: Final = Truncation(0, 0)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that may live, and where others reach it (``host:port``)."""

    incarnation: str
    address: str = ""


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know of a cluster at one moment.

    ``members`` are the brokers that may live, by name: who does, their signs of life say.
    ``reshaping`` are the shapes that collections are to have from the next era on, and
    ``revisions`` those of collections that were changed. ``changes`` are the ids of the last
    changes, the newest last. ``collections`` are those that are known here, in the order of
    their names: they are stored apart.
    """

    number: int
    identity: str
    format: int = FORMAT
    members: Mapping[str, Member] = {}
    eras: tuple[Era, ...] = ()
    reshaping: Mapping[str, Cuts] = {}
    revisions: Mapping[str, int] = {}
    changes: tuple[str, ...] = ()
    collections: tuple[Collection, ...] = ()

    @property
    def era(self) -> Era | None:
        """The newest era: open or ending. ``None`` before the first broker."""
        return self.eras[-1] if self.eras else None

    def find(self, name: str) -> Collection | None:
        place = bisect_left(self.collections, name, key=lambda x: x.name)
        found = self.collections[place : place + 1]
        return found[0] if found and found[0].name == name else None

    def collection(self, name: str) -> Collection:
        """Return a collection by its name; raise ``FeedRefused``."""
        found = self.find(name)
        if found is None:
            raise no_collection(name, [x.name for x in self.collections])
        return found

    def era_numbered(self, number: int) -> Era:
        return next(x for x in self.eras if x.number == number)


def first_catalog(cluster: Cluster) -> Catalog:
    """Return what the catalog is before there is any: number 0, which is never stored."""
    return Catalog(number=0, identity=cluster.identity)


def encode_catalog(catalog: Catalog) -> bytes:
    assert catalog.number > 0, "catalog 0 is what there is before one is stored"
    stored = msgspec.structs.asdict(catalog)
    del stored["collections"]
    return _checkable(stored)


def encode_collection(collection: Collection) -> bytes:
    return _checkable(collection)


def decode_collection(data: bytes, name: str) -> Collection:
    """Read the object of a collection; refuse one that is damaged, or of another name."""
    what = f"the object of collection {name!r}"
    try:
        found = from_json(checked(data, what), Collection)
    except Undecodable as error:
        raise FeedRefused(_damaged(what, str(error))) from error
    if found.name != name:
        raise FeedRefused(_damaged(what, f"it is of {found.name!r}"))
    return found


def _checkable(value: object) -> bytes:
    body = msgspec.json.encode(value)
    return b"%08x\n" % zlib.crc32(body) + body


def decode_catalog(data: bytes, identity: str) -> Catalog:
    """Read a catalog; refuse one that is damaged, of another cluster, or of another format."""
    what = "the catalog"
    body = checked(data, what)
    try:
        header = from_json(body, _Header)
    except Undecodable as error:
        raise FeedRefused(_damaged(what, str(error))) from error
    if header.identity != identity:
        raise FeedRefused(
            f"{what} is of another log ({header.identity[:8]}) than this one "
            f"({identity[:8]}): it was deleted and recreated while it was open, or restored "
            f"in part. Start again, after resetting the leases of its feeds; or restore the "
            f"store from one copy"
        )
    require_format(header.format, what)
    try:
        return from_json(body, Catalog)
    except Undecodable as error:
        raise FeedRefused(_damaged(what, str(error))) from error


def require_format(found: int, what: str) -> None:
    if found == FORMAT:
        return
    advice = "upgrade changefeed-host" if found > FORMAT else "begin anew in another place"
    raise FeedRefused(
        f"{what} has format {found}, and this version of changefeed-host reads format "
        f"{FORMAT} only: {advice}"
    )


def checked(data: bytes, what: str) -> bytes:
    """Return what follows a checksum in eight digits, if it is what was written."""
    head, _, body = data.partition(b"\n")
    if head != b"%08x" % zlib.crc32(body):
        raise FeedRefused(_damaged(what, "its checksum is wrong"))
    return body


def _damaged(what: str, why: str) -> str:
    return (
        f"{what} of the cluster is not what was written ({why}): restore it from a copy of "
        f"the store"
    )


class _Header(msgspec.Struct):
    identity: str
    format: int
