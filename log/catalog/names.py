"""Where the objects of a cluster lie in its store, and what names may be. Frozen.

Numbers in names are padded with zeros, so that a listing, which sorts as text, is in order.
"""

import re
from hashlib import blake2b
from typing import Final, NamedTuple

from changefeed.feeds.errors import FeedRefused

CLUSTER: Final = "cluster.json"
CATALOG: Final = "catalog"
COLLECTIONS: Final = "collections/"
PROBE: Final = "probe"
SEGMENTS: Final = "segments/"
WAL: Final = "wal/"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DIGITS: Final = 12
_SEGMENT: Final = re.compile(r"([0-9]{8})-(.+)-([0-9]{12})-[0-9a-f]{16}\.parquet", re.ASCII)


def collection_key(name: str) -> str:
    return f"{COLLECTIONS}{name}"


def broker_key(name: str) -> str:
    return f"brokers/{name}"


def row_prefix(era: int, broker: str) -> str:
    return f"{WAL}{era:08}/{broker}/"


def flush_key(era: int, broker: str, number: int) -> str:
    return f"{row_prefix(era, broker)}{number:0{_DIGITS}}"


def flush_keys(era: int, broker: str, numbers: range) -> list[str]:
    prefix = row_prefix(era, broker)
    return [f"{prefix}{x:0{_DIGITS}}" for x in numbers]


def compacted_prefix(era: int, broker: str) -> str:
    return f"compacted/{era:08}/{broker}/"


def compacted_key(era: int, broker: str, number: int) -> str:
    """Return where the run of a row lies that begins at object ``number``."""
    return f"{compacted_prefix(era, broker)}{number:0{_DIGITS}}"


def segments_of(collection: str) -> str:
    return f"{SEGMENTS}{collection}/"


def segments_prefix(collection: str, era: int, broker: str, first: int) -> str:
    """Return what names of segments begin with that are of a run of a row."""
    return f"{segments_of(collection)}{era:08}-{broker}-{first:0{_DIGITS}}-"


def segment_key(prefix: str, data: bytes) -> str:
    """Return the name of a segment: others have other names."""
    return f"{prefix}{blake2b(data, digest_size=8).hexdigest()}.parquet"


class RunPlace(NamedTuple):
    """The run of a row that begins at object ``first``."""

    era: int
    broker: str
    first: int


def run_of(key: str) -> RunPlace | None:
    """Return whose a segment is by its name; ``None`` for what is no segment of ours."""
    found = _SEGMENT.fullmatch(key.rpartition("/")[2])
    return None if found is None else RunPlace(int(found[1]), found[2], int(found[3]))


def number_of(key: str) -> int | None:
    """Return the number that a key ends in, ``None`` for what is no object of ours."""
    last = key.rpartition("/")[2]
    return int(last) if len(last) == _DIGITS and last.isascii() and last.isdigit() else None


def check_name(name: str, what: str) -> str:
    """Return a name of a collection or broker, or refuse it: it becomes part of keys."""
    if _NAME.fullmatch(name) is None:
        raise FeedRefused(
            f"{name!r} cannot be the name of a {what}: use 1 to 63 small letters, digits, "
            f"'.', '_' and '-', beginning with a letter or digit"
        )
    return name


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return what names sort by: broker-2 comes before broker-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return (*((0, int(x), "") if x.isdigit() else (1, 0, x) for x in parts), (2, 0, name))
