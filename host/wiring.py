"""From settings to a host that can run: what is opened, in which order, and wrapped in what."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from random import Random

from changefeed.feeds.addresses import open_feed
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import LeaseSettings, ObserverSettings, Settings
from changefeed.leases.addresses import open_container, open_stores
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from changefeed.observers.dead_letters import DeadLetters, open_dead_letters
from changefeed.observers.errors import ObserverRefused
from changefeed.observers.middleware.stack import wrap
from changefeed.observers.observer import ObserverFactory
from changefeed.observers.registry import load_observer


def open_leases(settings: Settings) -> AbstractAsyncContextManager[LeaseContainer]:
    """Open the container that the settings name: one, or two stores that act as one."""
    leases = settings.leases
    options = settings.open_options
    if leases.ownership is not None and leases.checkpoints is not None:
        return open_stores(leases.ownership, leases.checkpoints, options)
    return open_container(leases.container, options)


def find_observer(settings: ObserverSettings) -> ObserverFactory:
    """Find the observer that the settings name. Raise ``ObserverRefused`` with advice."""
    if settings.name is None:
        raise ObserverRefused(
            "no observer was named; give one with --observer module:Class, or try "
            "--observer log"
        )
    return load_observer(settings.name, settings.options)


def _dead_letters(
    settings: ObserverSettings,
) -> AbstractAsyncContextManager[DeadLetters | None]:
    """Open them before anything has failed, where they may be wanted."""
    if settings.on_failure != "dead-letter":
        return nullcontext()
    return open_dead_letters(settings.dead_letters)


@asynccontextmanager
async def open_host(
    settings: Settings, make: ObserverFactory, *, address: str = ""
) -> AsyncIterator[Host]:
    """Open the feed and the container, and yield a host over them."""
    events = HostEvents(HostName(settings.host.name))
    random = Random()  # noqa: S311 - spreads timers, guards nothing
    async with (
        open_feed(settings.feed.address, settings.open_options) as feed,
        open_leases(settings) as container,
        _dead_letters(settings.observer) as dead_letters,
    ):
        maker = wrap(make, settings.observer, events, random, dead_letters=dead_letters)
        host = Host(
            settings,
            feed=feed,
            container=container,
            make_observer=maker,
            events=events,
            address=address,
            random=random,
        )
        events.started(host.incarnation, settings.feed.address, _kept_at(settings.leases))
        yield host


def _kept_at(settings: LeaseSettings) -> str:
    if settings.ownership is not None and settings.checkpoints is not None:
        return f"{settings.ownership} with {settings.checkpoints}"
    return settings.container
