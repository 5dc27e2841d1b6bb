"""Fleets whose metrics are recorded as Prometheus would fetch them, in virtual time."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from random import Random
from typing import Any, Self

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import MemoryDeadLetters, Origin
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.range_observers import ObserverSetup
from changefeed.runtime.telemetry import own_metrics
from changefeed.testing.fleet import Sections
from tests.support import make

EVERY = 60.0
"""Seconds between two scrapes."""
_BEGIN = 1_700_000_000.0


class RecordedFleet:
    """Hosts with registries of their own, over a feed in memory.

    ``series`` has a line for each series of each host: its values from scrape to scrape, as
    the tests of ``promtool`` write them.
    """

    def __init__(
        self, observer: Any, *, ranges: int = 3, parts: Sections | None = None
    ) -> None:
        self.feed = MemoryFeed(ranges, clock=self._wall)
        self.container: LeaseContainer = MemoryLeases()
        self.events: dict[str, HostEvents] = {}
        self._hosts: dict[str, tuple[Host, asyncio.Task[None]]] = {}
        self._registries: dict[str, CollectorRegistry] = {}
        self._observer = observer
        self._parts = parts or {}
        self._values: dict[str, list[str]] = {}
        self._scrapes = 0
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with self._stack:
            for name in [*self._hosts]:
                await self.stop(name)

    def _wall(self) -> float:
        return _BEGIN + asyncio.get_running_loop().time()

    def start(self, name: str, *, container: LeaseContainer | None = None) -> None:
        wanted = make.settings(name, self._parts)
        meters, registry = self._stack.enter_context(own_metrics("changefeed", name))
        events = HostEvents(HostName(name), meters.get_meter("changefeed"))
        host = Host(
            wanted,
            feed=self.feed,
            container=container or self.container,
            observers=ObserverSetup(
                adapt(self._observer),
                wanted.observer,
                events,
                Random(1),
                letters=LetterWriter(MemoryDeadLetters(), Origin(feed=self.feed.identity)),
            ),
            events=events,
            wall=self._wall,
        )
        self.events[name] = events
        self._registries[name] = registry
        self._hosts[name] = host, asyncio.create_task(host.run())

    async def stop(self, name: str) -> None:
        host, running = self._hosts.pop(name)
        host.stop()
        await asyncio.wait([running])
        del self._registries[name]

    async def live(self, minutes: int, *, changes: int = 0) -> None:
        """Append so many changes in each minute, and scrape at its end."""
        for _ in range(minutes):
            for n in range(changes):
                self.feed.append(f"key-{self._scrapes}-{n}")
            await asyncio.sleep(EVERY)
            self._scrape()

    def _scrape(self) -> None:
        for name, registry in self._registries.items():
            for series, value in _samples(registry, name).items():
                values = self._values.setdefault(series, [])
                values += ["_"] * (self._scrapes - len(values))
                values.append(f"{value:g}")
        self._scrapes += 1
        for values in self._values.values():
            if len(values) < self._scrapes:  # Prometheus marks what is gone from a scrape
                values.append("stale" if values[-1] not in ("stale", "_") else "_")

    @property
    def series(self) -> Mapping[str, str]:
        return {name: " ".join(values) for name, values in self._values.items()}

    @property
    def minutes(self) -> int:
        return self._scrapes


def _samples(registry: CollectorRegistry, instance: str) -> Mapping[str, float]:
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for x in family.samples:
            labels = {**x.labels, "job": "shop", "instance": instance}
            named = ",".join(f'{k}="{v}"' for k, v in sorted(labels.items()))
            found[f"{x.name}{{{named}}}"] = x.value
    return found
