"""How ranges and positions are written down. Frozen: leases keep these texts for years.

A range id names its era, its part and its virtual parts, both ends included:
``e1.p03.v00-ff``. A part of it that is read by itself names its virtual parts behind that:
``e1.p03.v00-ff~40-7f``. A position is ``<log>/<sequence>``: the first eight digits of the log's
identity, and the sequence of the last change that lies before it. The identity is there
because a log that was deleted and recreated has other changes under the same numbers.
"""

import re

from changefeed.feeds.errors import FeedRefused, RangeRefused
from changefeed.feeds.feed import Position, RangeId
from changefeed.feeds.parts import part_named

_MARK = 8
_ERA = re.compile(r"e([0-9]{1,9})\.")
_PART = re.compile(r"([^~]+)~([0-9a-f]{2})-([0-9a-f]{2})")
_POSITION = re.compile(r"[0-9a-f]{8}/[0-9]{1,18}")  # what a page adds fits in 64 bits
LAST_SEQUENCE = 10**18 - 1
"""The last that a position can name."""


def range_id(*, era: int, part: int, low: int, high: int) -> RangeId:
    return RangeId(f"e{era}.p{part:02}.v{low:02x}-{high:02x}")


def era_in(range_id: RangeId) -> int:
    """Return the era that a range id names, of a part too; 0 for what is no such id."""
    found = _ERA.match(range_id)
    return 0 if found is None else int(found[1])


def part_id(whole: RangeId, low: int, high: int) -> RangeId:
    """Name a part of a range: some of its virtual parts, both ends included."""
    return part_named(whole, f"{low:02x}", f"{high:02x}")


def part_in(range_id: RangeId) -> tuple[RangeId, int, int] | None:
    """Read the name of a part: its range, and its virtual parts. ``None`` if it is none."""
    found = _PART.fullmatch(range_id)
    return (RangeId(found[1]), int(found[2], 16), int(found[3], 16)) if found else None


def position(identity: str, sequence: int) -> Position:
    assert sequence >= 0, f"there is nothing before the beginning: {sequence}"
    return Position(f"{identity[:_MARK]}/{sequence}")


def sequence_of(after: Position, identity: str) -> int:
    """Read a position of the log with this identity; refuse that of any other."""
    if _POSITION.fullmatch(after) is None:
        raise FeedRefused(
            f"{after!r} is not a position in an event log: it is of another kind of feed, or "
            f"was damaged. Reset the lease that has it"
        )
    mark, _, sequence = after.partition("/")
    if mark != identity[:_MARK]:
        raise FeedRefused(
            f"the position {after!r} is of another log than this one ({identity[:_MARK]}): the "
            f"log was deleted and recreated, or the leases are those of another feed. "
            f"Reset the leases of this feed to start it again"
        )
    return int(sequence)


def sequence_in(range_id: RangeId, after: Position, identity: str) -> int:
    """Read a position of a range that is to be read on; refuse that range if it is none.

    The leases are of this log, else the host had not started (``leases.fleet_record``): so
    what is wrong concerns one range, and not the feed.
    """
    try:
        return sequence_of(after, identity)
    except FeedRefused as error:
        reason = f"range {range_id!r} cannot be read on: {error}"
        raise RangeRefused(range_id, reason) from error
