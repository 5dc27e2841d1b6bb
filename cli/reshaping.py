"""Splitting and merging ranges: more of them, or fewer, than the feed has."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from changefeed.cli.existing_leases import existing_leases
from changefeed.cli.io.report import remark, say
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.feed import BoundedFeed, RangeId
from changefeed.fleet.reshape import merge as merge_ranges
from changefeed.fleet.reshape import split as split_range
from changefeed.fleet.stopping import LeasedFeed
from changefeed.host.settings import Settings
from changefeed.leases.fleet_record import require_feed


async def split(settings: Settings, name: str, into: int) -> None:
    """Split a range, and say what it goes on in."""
    range_id = RangeId(name)
    async with _leased(settings) as leased:
        parts = await split_range(leased, range_id, into)
    say(f"{range_id}: split; it goes on in")
    for x in parts:
        say(f"  {x.id}")


async def merge(settings: Settings, names: Sequence[str], wait: float) -> None:
    """Merge ranges, after at the most ``wait`` seconds, and say what they go on as."""
    range_ids = [RangeId(x) for x in dict.fromkeys(names)]
    async with _leased(settings) as leased:
        merged = await merge_ranges(leased, range_ids, patience=wait)
    say(f"{', '.join(range_ids)}: merged; they go on as {merged.id}")


@asynccontextmanager
async def _leased(settings: Settings) -> AsyncIterator[LeasedFeed]:
    async with (
        existing_leases(settings) as container,
        open_feed(settings.feed.address, settings.open_options) as opened,
    ):
        feed = BoundedFeed(opened)
        await require_feed(container, feed.identity)
        yield LeasedFeed(
            feed=feed,
            container=container,
            longest_handoff=settings.leases.longest_handoff,
            say=remark,
        )
