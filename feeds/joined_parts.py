"""Which parts can be one again: those of one range, whose positions are the same."""

from collections.abc import Callable, Sequence

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId


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
