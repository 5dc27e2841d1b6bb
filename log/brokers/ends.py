"""Which of many partitions have come further than their readers: one question for all of them.

Only the partitions that this broker writes are looked at, and those that are closed. What
another broker writes is answered as not known here: its reader asks for itself, as it does
anyway while its broker is not there.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from changefeed.feeds.errors import RangeUnknown
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.protocol.wire import PartitionNews

_BETWEEN: Final = 0.05
"""Seconds at least between two looks: a broker writes many objects a second."""


async def moved_partitions(
    core: BrokerCore,
    collection: str,
    after: Mapping[RangeId, int],
    *,
    wait: float,
    is_gone: Callable[[], bool],
) -> Mapping[RangeId, PartitionNews]:
    """Return those that do not end for now at these sequences; wait for a first of them.

    ``wait`` is in seconds. What is closed has always moved, as what is not known here.
    ``is_gone`` says that the client is not there any more: then there is nothing to wait for.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + wait
    await core.look_for(collection, *after)
    while True:
        found = await _moved_now(core, collection, after)
        if found or is_gone() or clock() >= until:
            break
        await _next_write(core, until, is_gone)
    if not found:
        core.check_sight()  # they may have ended, unseen from here
    return found


async def _next_write(core: BrokerCore, until: float, is_gone: Callable[[], bool]) -> None:
    """Wait until something was written, for as long as the client is there."""
    clock, interval = asyncio.get_running_loop().time, core.settings.catalog_interval
    while not is_gone() and clock() < until:
        if await core.writer.changed.wait(min(until, clock() + interval)):
            await asyncio.sleep(_BETWEEN)
            return


async def _moved_now(
    core: BrokerCore, collection: str, after: Mapping[RangeId, int]
) -> Mapping[RangeId, PartitionNews]:
    ranges, found = core.ranges.of(collection), dict[RangeId, PartitionNews]()
    for name, sequence in after.items():
        try:
            last = await core.known_end(collection, name)
            ended = ranges.partition(name).era < ranges.newest
        except RangeUnknown:
            last, ended = None, False
        if ended or last != sequence:
            found[name] = PartitionNews(last=last, ended=ended)
    return found
