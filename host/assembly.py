"""From settings to a host that can run: what is opened, in which order, and wrapped in what."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

from feeds.feed import FeedRange
from feeds.opening import open_feed
from leases.container import LeaseContainer
from leases.lease import HostName
from leases.opening import open_container, open_stores
from observers.errors import ObserverRefused
from observers.observer import Observer, ObserverFactory
from observers.registry import load_observer
from observers.retrying import Retrying, Sleep

from .host import Host
from .journal import Journal
from .settings import LeaseSettings, ObserverSettings, Settings
from .worker import ObserverMaker


def open_leases(settings: LeaseSettings) -> AbstractAsyncContextManager[LeaseContainer]:
    """Open the container that the settings name: one, or two stores that act as one."""
    if settings.ownership is not None and settings.checkpoints is not None:
        return open_stores(settings.ownership, settings.checkpoints)
    return open_container(settings.container)


def observer_factory(settings: ObserverSettings) -> ObserverFactory:
    """Find the observer that the settings name. Raise ``ObserverRefused`` with advice."""
    if settings.name is None:
        raise ObserverRefused(
            "no observer was named; give one with --observer module:Class, or try "
            "--observer log"
        )
    return load_observer(settings.name, settings.options)


def wrapped(
    make: ObserverFactory, settings: ObserverSettings, journal: Journal, random: Random
) -> ObserverMaker:
    """Put around each observer what the settings ask for, the innermost first."""

    def make_one(feed_range: FeedRange, sleep: Sleep) -> Observer:
        def on_retry(attempt: int, error: BaseException, delay: float) -> None:
            journal.observer_retrying(feed_range.id, attempt, error, delay)

        return Retrying(make(), settings.retry, random=random, on_retry=on_retry, sleep=sleep)

    return make_one


@asynccontextmanager
async def assembled(
    settings: Settings, make: ObserverFactory, *, address: str = ""
) -> AsyncIterator[Host]:
    """Open the feed and the container, and yield a host over them."""
    journal = Journal(HostName(settings.host.name))
    random = Random()  # noqa: S311 - spreads timers, guards nothing
    async with (
        open_feed(settings.feed.address) as feed,
        open_leases(settings.leases) as container,
    ):
        host = Host(
            settings,
            feed=feed,
            container=container,
            make_observer=wrapped(make, settings.observer, journal, random),
            journal=journal,
            address=address,
            random=random,
        )
        journal.started(host.incarnation, settings.feed.address, _kept_at(settings.leases))
        yield host


def _kept_at(settings: LeaseSettings) -> str:
    if settings.ownership is not None and settings.checkpoints is not None:
        return f"{settings.ownership} with {settings.checkpoints}"
    return settings.container
