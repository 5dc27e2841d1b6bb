"""A fleet as users get it, and settings for one of its hosts."""

from typing import Any

from changefeed.feeds.feed import Feed
from changefeed.leases.container import LeaseContainer
from changefeed.testing.fleet import Fleet as UsersFleet
from changefeed.testing.fleet import FleetLog as Log
from changefeed.testing.fleet import LoggingObserver, fleet_settings
from changefeed.testing.fleet import Sections as Parts

__all__ = ["Fleet", "Log", "LoggingObserver", "Parts", "settings"]

settings = fleet_settings


class Fleet(UsersFleet):
    def __init__(
        self, feed: Feed, container: LeaseContainer, *, parts: Parts | None = None, **more: Any
    ) -> None:
        super().__init__(feed, container, settings=parts, **more)
