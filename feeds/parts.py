"""What feeds that keep parts of ranges share: names of parts, and which can be one again."""

from collections.abc import Callable, Sequence

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId

_MARK = "~"


def part_named(whole: RangeId, low: str, high: str) -> RangeId:
    return RangeId(f"{whole}{_MARK}{low}-{high}")


def range_in_name(name: RangeId) -> RangeId:
    """Return the range that a part is named after; nothing for what is no part."""
    return RangeId(name.rpartition(_MARK)[0])


def refuse_other_wholes(
    parts: Sequence[FeedRange], whole_of: Callable[[RangeId], RangeId | None]
) -> RangeId:
    """Return the range that all are parts of. Raise ``FeedRefused`` if they are not."""
    wholes = {whole_of(x.id) for x in parts}
    whole = wholes.pop()
    if whole is None or wholes:
        raise FeedRefused(
            f"ranges {', '.join(x.id for x in parts)} are not all parts of one range of the "
            f"feed, so their positions cannot be compared: only what was split here can be "
            f"merged here"
        )
    return whole
