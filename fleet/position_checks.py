"""Whether a document of positions can become leases of a feed: asked before the first write.

A document may have been edited, cut short, merged from two, or saved from another feed. So
every entry is compared with the feed: each key is held once, by a range that the feed has, at
a position that it can be read from. All that is wrong is said at once.

Limits: the feed may change, and forget, between this look and the write. Of a range that has
ended only its end is looked at: no host reads there again.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence

from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused, RangeRefused, RangeUnknown
from changefeed.feeds.feed import Feed, FeedRange, RangeEnded, StartAt
from changefeed.fleet.coverage import uncovered
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import Lease, require_position
from changefeed.leases.position_file import Positions
from changefeed.runtime.calls import for_each
from changefeed.runtime.errors import StoreRefused

_AT_ONCE = 8
_SHOWN = 10


async def refuse_wrong_positions(wanted: Positions, feed: Feed, *, start: StartAt) -> None:
    """Raise ``StoreRefused`` with each entry that is wrong, and why.

    ``start`` is where hosts begin a range that has no lease. Raise ``FeedUnavailable`` if the
    feed cannot be asked now.
    """
    if wanted.feed not in ("", feed.identity):
        raise StoreRefused(
            f"the file has positions of another feed ({wanted.feed}) than the one at this "
            f"address ({feed.identity}): they mean nothing there"
        )
    leases = wanted.leases
    wrong = [*_in_themselves(leases)] or [x async for x in _in_the_feed(leases, feed, start)]
    if not wrong:
        return
    shown, more = wrong[:_SHOWN], len(wrong) - _SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    raise StoreRefused(
        f"the file of positions is wrong: {'; '.join(shown)}{rest}. Nothing was written"
    )


def _in_themselves(leases: Sequence[Lease]) -> Iterator[str]:
    """Find what is wrong whatever the feed is."""
    if not leases:
        yield "it has no positions"
    for name, count in Counter(x.range_id for x in leases).items():
        if count > 1:
            yield f"range {name!r} is there {count} times"
    for x in leases:
        if x.range.low and x.range.low >= x.range.high:
            yield (
                f"the keys of range {x.range_id!r} end ({x.range.high!r}) before they begin "
                f"({x.range.low!r})"
            )


async def _in_the_feed(
    leases: Sequence[Lease], feed: Feed, start: StartAt
) -> AsyncIterator[str]:
    assert len({x.range_id for x in leases}) == len(leases), "refused before"
    ranges = await feed.ranges()
    for bounds in _bounds(leases, ranges):
        yield bounds
    begun = [replace(x, epoch=max(x.epoch, 1)) for x in leases]
    keymap = KeyMap(begun, ranges=ranges, sub_range=feed.sub_range)
    for found in uncovered(keymap, start=start):
        yield found.text

    async def read(lease: Lease) -> str | None:
        return await _when_read(feed, lease)

    for text in await for_each(leases, read, at_once=_AT_ONCE):
        if text is not None:
            yield text


def _bounds(leases: Sequence[Lease], ranges: Sequence[FeedRange]) -> Iterator[str]:
    known = {x.id: (x.low, x.high) for x in ranges if x.high}
    for x in leases:
        bounds = known.get(x.range_id)
        if bounds is not None and x.range.high and (x.range.low, x.range.high) != bounds:
            yield (
                f"range {x.range_id!r} has the keys from {x.range.low!r} to "
                f"{x.range.high!r}, and in the feed those from {bounds[0]!r} to {bounds[1]!r}"
            )


async def _when_read(feed: Feed, lease: Lease) -> str | None:
    """Read one change where a host would go on; say what keeps it from that."""
    assert lease.owner is None, "a document has no owners"
    if lease.end is not None and lease.end.by != "feed":
        return None  # others have its keys, and the feed has not ended it
    name = lease.range_id
    try:
        await feed.read(lease.range, require_position(lease), 1)
    except RangeEnded:
        return None
    except (RangeUnknown, FeedRefused) as error:
        if lease.ended and isinstance(error, RangeUnknown | RangeRefused):
            return None  # the feed has forgotten it
        unknown = isinstance(error, RangeUnknown)
        return f"range {name!r}: {'the feed has no such range' if unknown else error}"
    if lease.ended:
        return f"range {name!r} has not ended: the feed goes on after {lease.position!r}"
    return None
