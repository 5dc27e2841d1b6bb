"""Observers that keep what they are handed, and fleets whose observers a test makes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

from changefeed.feeds.feed import Change, Feed
from changefeed.host.events import HostEvents
from changefeed.host.settings import ObserverSettings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import CloseReason, Context, ObserverFactory
from changefeed.observers.range_observers import ObserverSetup
from changefeed.testing.fleet import Fleet, Sections
from tests.support import make


class Handed:
    """An observer that only keeps what it was handed, under which epochs, and why it ended."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.epochs: list[int] = []
        self.contexts: list[Context] = []
        self.reasons: list[CloseReason] = []

    @property
    def sequences(self) -> list[int]:
        return [x.sequence for x in self.changes]

    async def open(self, context: Context) -> None:
        self.contexts.append(context)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        self.epochs.append(context.epoch)
        self.changes += changes

    async def close(self, _context: Context, reason: CloseReason) -> None:
        self.reasons.append(reason)


def fleet_of(
    observers: ObserverFactory,
    feed: Feed,
    container: LeaseContainer,
    sections: Sections | None = None,
) -> Fleet:
    """Return a fleet with these observers, wrapped as its settings say."""
    sections = sections or {}
    observer = ObserverSettings.model_validate(sections.get("observer", {}))
    setup = ObserverSetup(observers, observer, HostEvents(HostName("fleet")), Random(1))
    return Fleet(feed, container, settings=sections, observers=setup)


@asynccontextmanager
async def handed_to(
    observer: Handed, changes: int = 5, sections: Sections | None = None
) -> AsyncIterator[Fleet]:
    """Let host a read a range with so many changes for this observer."""
    feed = make.memory_feed(1, changes)
    async with fleet_of(lambda: observer, feed, MemoryLeases(), sections) as fleet:
        fleet.start("a")
        yield fleet
