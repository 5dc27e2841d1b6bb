"""Parts of the ranges of a feed in memory: intervals of the hashes of one range.

A part is named by its range and its bounds: ``r0~000000000-080000000``.
"""

import re
import zlib
from collections.abc import Sequence
from itertools import pairwise

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.feeds.parts import part_named, refuse_other_wholes, sub_range_of

_PART = re.compile(r"(.*)~([0-9a-f]{9})-([0-9a-f]{9})", re.DOTALL)


def hash_of(key: str) -> int:
    return zlib.crc32(key.encode())


def bound(place: int) -> str:
    """Write a hash so that bounds sort as text: the highest has a digit more than a hash."""
    return f"{place:09x}"


def part_between(found: FeedRange, low: str, high: str) -> FeedRange:
    """Return a part of a range, or of the range that a part belongs to."""
    whole = found.whole
    return sub_range_of(found, id=part_named(whole, low, high), low=low, high=high)


def part_in(range_id: RangeId) -> tuple[RangeId, int, int] | None:
    """Read the name of a part: its range, its lowest hash, and one above its highest."""
    found = _PART.fullmatch(range_id)
    return (RangeId(found[1]), int(found[2], 16), int(found[3], 16)) if found else None


def cut(found: FeedRange, into: int) -> Sequence[FeedRange]:
    low, high = int(found.low, 16), int(found.high, 16)
    if high - low < into:
        raise FeedRefused(f"range {found.id!r} has too few hashes to be split into {into}")
    cuts = [bound(low + (high - low) * n // into) for n in range(into + 1)]
    return [part_between(found, x, y) for x, y in pairwise(cuts)]


def joined(parts: Sequence[FeedRange]) -> FeedRange:
    newest = refuse_other_wholes(parts)
    return part_between(newest, parts[0].low, parts[-1].high)
