"""``changefeed split`` and ``changefeed merge``: more ranges, or fewer, than the feed has."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from changefeed.cli.existing import existing_leases
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.report import remark, say
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.feed import RangeId
from changefeed.feeds.timeouts import bounded_feed
from changefeed.fleet.reshape import merge as merge_ranges
from changefeed.fleet.reshape import split as split_range
from changefeed.fleet.stopping import LeasedFeed
from changefeed.host.settings import Settings
from changefeed.leases.fleet_record import compare_feeds

_MOST_PARTS = 256


@with_flags
def split(
    range_: Annotated[str, typer.Argument(metavar="RANGE", help="As status names it.")],
    flags: FeedFlags,
    *,
    into: Annotated[
        int, typer.Option("--into", min=2, max=_MOST_PARTS, help="How many parts.")
    ] = 2,
) -> None:
    """Read a range of the feed in parts of its keys, so that more hosts share it.

    Its owner finishes its current batch, checkpoints and releases it; the parts go on from
    there, and the order of each key is kept. For feeds in Cosmos DB and event logs.
    """
    with exit_on_error():
        settings = flags.settings()
        asyncio.run(_split(settings, RangeId(range_), into))


@with_flags
def merge(
    ranges: Annotated[list[str], typer.Argument(metavar="RANGE", help="Whose keys touch.")],
    flags: FeedFlags,
    *,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", min=0, max=86_400, help="Seconds to wait until they are at one position."
        ),
    ] = 60.0,
) -> None:
    """Read parts of one range of the feed as one again.

    They must be at one position, or nothing could be exact: so this waits until all have been
    read to their end while the feed rests for a moment, and ends with 2 if it does not.
    """
    with exit_on_error():
        settings = flags.settings()
        asyncio.run(_merge(settings, [RangeId(x) for x in dict.fromkeys(ranges)], wait))


async def _split(settings: Settings, range_id: RangeId, into: int) -> None:
    async with _leased(settings) as leased:
        parts = await split_range(leased, range_id, into)
    say(f"{range_id}: split; it goes on in")
    for x in parts:
        say(f"  {x.id}")


async def _merge(settings: Settings, range_ids: Sequence[RangeId], wait: float) -> None:
    async with _leased(settings) as leased:
        merged = await merge_ranges(leased, range_ids, patience=wait)
    say(f"{', '.join(range_ids)}: merged; they go on as {merged.id}")


@asynccontextmanager
async def _leased(settings: Settings) -> AsyncIterator[LeasedFeed]:
    async with (
        existing_leases(settings) as container,
        open_feed(settings.feed.address, settings.open_options) as opened,
    ):
        feed = bounded_feed(opened)
        await compare_feeds(container, feed.identity)
        yield LeasedFeed(
            feed=feed,
            container=container,
            longest_handoff=settings.leases.longest_handoff,
            fence_margin=settings.leases.timing.fence_margin,
            say=remark,
        )
