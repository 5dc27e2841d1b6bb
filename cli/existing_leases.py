"""Leases that are there already: to look at them, or to change them, must not make any."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from changefeed.cli.exit_codes import print_error
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import Feed
from changefeed.fleet.peers import Peers
from changefeed.fleet.sources import StoreSource
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet import FleetWatch
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import StoreMissing
from changefeed.stores.addresses import without_secrets
from changefeed.stores.store import CallLimits


@asynccontextmanager
async def existing_leases(settings: Settings) -> AsyncIterator[LeaseContainer]:
    """Open the leases. Raise ``StoreMissing`` where there are none."""
    timeout = settings.leases.timing.call_timeout
    async with open_leases(settings, must_exist=True) as container:
        yield container.bounded(CallLimits(timeout=timeout))


@asynccontextmanager
async def existing_fleet(
    settings: Settings, peers: Peers | None = None, *, rates: bool = False, acts: bool = False
) -> AsyncIterator[StoreSource]:
    """Open what a look at a fleet reads. If the feed cannot be opened, each look says so; raise
    ``StoreMissing`` where there are no leases, ``FeedRefused`` for a feed's address that
    cannot be one. Unless the caller ``acts`` on the leases, those that cannot be shared are
    shown.
    """
    opening = open_feed(settings.feed.address, settings.open_options)
    async with AsyncExitStack() as stack:
        container = await stack.enter_async_context(
            open_leases(settings, must_exist=True, only_look=not acts)
        )
        feed, no_feed = None, None
        try:
            feed = await stack.enter_async_context(opening)
        except FeedError as error:
            no_feed = error
        yield source_of(settings, container, feed, no_feed, peers=peers, rates=rates)


def source_of(
    settings: Settings,
    container: LeaseContainer,
    feed: Feed | None,
    no_feed: FeedError | None = None,
    **more: Any,
) -> StoreSource:
    """Return a source over what is open. ``more`` is for ``StoreSource``."""
    leases = settings.leases
    return StoreSource(
        container,
        feed,
        no_feed,
        address=without_secrets(settings.feed.address),
        place=without_secrets(leases.address),
        timing=leases.timing,
        **more,
    )


@asynccontextmanager
async def leases_if_any(settings: Settings) -> AsyncIterator[LeaseContainer]:
    """Open the leases to plan what to write. Where the first write makes the container, show
    none; else raise ``StoreMissing``.
    """
    container: LeaseContainer = MemoryLeases()
    async with AsyncExitStack() as stack:
        try:
            container = await stack.enter_async_context(existing_leases(settings))
        except StoreMissing as missing:
            if not will_be_made(missing, settings):
                raise
        yield container


def will_be_made(missing: StoreMissing, settings: Settings) -> bool:
    """Whether a host with these settings makes the container that is not there."""
    return missing.made_by_run or settings.leases.create


def fleet_watch(settings: Settings) -> FleetWatch:
    """Return what tells the hosts of a fleet that live from those that are dead."""
    return FleetWatch(settings.leases.timing)


def say_watched(settings: Settings) -> Callable[[Sequence[str]], None]:
    """Return what says that a command waits for signs of life of these hosts."""
    longest = settings.leases.expiration

    def say(hosts: Sequence[str]) -> None:
        print_error(f"watching whether {', '.join(hosts)} lives, for up to {longest:g} s")

    return say
