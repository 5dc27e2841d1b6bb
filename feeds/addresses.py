"""Opening a feed by its address: ``eventlog:PATH``, ``cosmos://HOST/DATABASE/CONTAINER``.

The part before the colon says which kind of feed it is, the rest is for that kind to
read. A kind is imported when it is first asked for, so what one needs burdens no other.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from changefeed.feeds.cosmos.address import AddressWrong, CosmosAccess, read_address
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed

Opener = Callable[[str, CosmosAccess], AbstractAsyncContextManager[Feed]]


def open_feed(
    address: str, cosmos: CosmosAccess | None = None
) -> AbstractAsyncContextManager[Feed]:
    """Return the feed at an address, open as long as the block lasts.

    ``cosmos`` opens accounts of Cosmos DB; it is taken from the environment if not given.
    Raise ``FeedRefused``, with advice, for an address of no kind we know, at once; and for
    one that leads to no feed, on entering the block.
    """
    scheme, colon, place = address.partition(":")
    opener = _OPENERS.get(scheme)
    if not colon or opener is None:
        known = ", ".join(f"{name}:..." for name in sorted(_OPENERS) if name != "memory")
        raise FeedRefused(f"{address!r} is no address of a feed: write one of {known}")
    return opener(place, cosmos or CosmosAccess.of(os.environ))


def _event_log(place: str, _: CosmosAccess) -> AbstractAsyncContextManager[Feed]:
    from changefeed.feeds.eventlog import EventLog  # noqa: PLC0415 - only for those who use it

    if not place:
        raise FeedRefused(
            "'eventlog:' lacks the directory of the log, as in eventlog:./orders. "
            "Make one with: changefeed produce ..."
        )
    return EventLog.open(Path(place).expanduser())


def _cosmos(scheme: str, place: str, access: CosmosAccess) -> AbstractAsyncContextManager[Feed]:
    from changefeed.feeds.cosmos import MODES, open_cosmos  # noqa: PLC0415 - only for those who use it

    try:
        address = read_address(scheme, place, known={"mode"})
    except AddressWrong as error:
        raise FeedRefused(str(error)) from error
    mode = address.options.get("mode", "latest-version")
    if mode not in MODES:
        raise FeedRefused(f"a feed has no mode {mode!r}; there are: {', '.join(MODES)}")
    return open_cosmos(address, access, mode=MODES[mode])


def _memory(place: str, _: CosmosAccess) -> AbstractAsyncContextManager[Feed]:
    raise FeedRefused(
        f"'memory:{place}' has no address: a feed in memory lives in the one process that "
        f"made it. Make a MemoryFeed in Python, or use eventlog:PATH"
    )


_OPENERS: Mapping[str, Opener] = {
    "cosmos": partial(_cosmos, "cosmos"),
    "cosmos+http": partial(_cosmos, "cosmos+http"),
    "eventlog": _event_log,
    "memory": _memory,
}
