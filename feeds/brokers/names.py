"""Where the objects of a cluster lie in its store, and what names may be. Frozen.

Numbers in names are padded with zeros, so that a listing, which sorts as text, is in order.
"""

import re
from typing import Final

from changefeed.feeds.brokers.errors import ClusterRefused
from changefeed.feeds.feed import RangeId

CLUSTER: Final = "cluster.json"
CATALOG: Final = "catalog"
COLLECTIONS: Final = "collections/"
PROBE: Final = "probe"
SEGMENTS: Final = "segments/"
WAL: Final = "wal/"

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_DIGITS: Final = 12
_SEQUENCE_DIGITS: Final = 19


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
    """Return where it is written that objects of a row from ``number`` on are in segments."""
    return f"{compacted_prefix(era, broker)}{number:0{_DIGITS}}"


def segments_prefix(collection: str, partition: RangeId) -> str:
    return f"{SEGMENTS}{collection}/{partition}/"


def segment_key(collection: str, partition: RangeId, first: int, last: int) -> str:
    """Return where records of a partition lie, both sequences included."""
    bounds = f"{first:0{_SEQUENCE_DIGITS}}-{last:0{_SEQUENCE_DIGITS}}"
    return f"{segments_prefix(collection, partition)}{bounds}.parquet"


def number_of(key: str) -> int | None:
    """Return the number that a key ends in, ``None`` for what is no object of ours."""
    last = key.rpartition("/")[2]
    return int(last) if len(last) == _DIGITS and last.isascii() and last.isdigit() else None


def check_name(name: str, what: str) -> str:
    """Return a name of a collection or broker, or refuse it: it becomes part of keys."""
    if _NAME.fullmatch(name) is None:
        raise ClusterRefused(
            f"{name!r} cannot be the name of a {what}: use 1 to 63 small letters, digits, "
            f"'.', '_' and '-', beginning with a letter or digit"
        )
    return name


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return what names sort by: broker-2 comes before broker-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return (*((0, int(x), "") if x.isdigit() else (1, 0, x) for x in parts), (2, 0, name))
