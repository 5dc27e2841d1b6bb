"""What the workers of one host share."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from changefeed.feeds.feed import Feed
from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.settings import Settings
from changefeed.host.workers.idle_ranges import IdleRanges
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from changefeed.observers.middleware.fence import ObserverMaker


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnvironment:
    """``is_alive`` says whether a host is known to live: leases are handed to no others;
    ``renew_each`` whether each lease must be renewed, because not all who share them go by
    the heartbeats of their owners.
    """

    host: HostName
    feed: Feed
    container: LeaseContainer
    make_observer: ObserverMaker
    is_alive: Callable[[HostName], bool]
    renew_each: Callable[[], bool]
    settings: Settings
    idle: IdleRanges
    events: HostEvents
    random: Random
    wall: Callable[[], float]

    @property
    def retrier(self) -> Retrier:
        return Retrier(self.events, self.random)
