"""What feeds that keep parts of ranges share: names of parts, and which can be one again."""

from collections.abc import Sequence

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId

_MARK = "~"


def part_named(whole: RangeId, low: str, high: str) -> RangeId:
    return RangeId(f"{whole}{_MARK}{low}-{high}")


def range_in_name(name: RangeId) -> RangeId:
    """Return the range that a part is named after; nothing for what is no part."""
    return RangeId(name.rpartition(_MARK)[0])


def sub_range_of(found: FeedRange, *, id: RangeId, low: str, high: str) -> FeedRange:  # noqa: A002 - the field
    """Return a part of a range under its name; it comes after the range that it is cut from."""
    depth, cuts = found.generation
    return FeedRange(id=id, low=low, high=high, of=found.whole, generation=(depth, cuts + 1))


def refuse_other_wholes(parts: Sequence[FeedRange]) -> FeedRange:
    """Return the newest of some parts of one range. Raise ``FeedRefused`` if they are not."""
    if None in (wholes := {x.of for x in parts}) or len(wholes) > 1:
        raise FeedRefused(
            f"ranges {', '.join(x.id for x in parts)} are not all parts of one range of the "
            f"feed, so their positions cannot be compared: only what was split here can be "
            f"merged here"
        )
    return max(parts, key=lambda x: x.generation)
