"""Hosts in real seconds, and what they serve over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from changefeed.feeds.memory import MemoryFeed
from changefeed.host.endpoints import HostEndpoints, application
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import WebSettings, load_settings
from changefeed.host.web import listening_socket, url_of
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.range_observers import ObserverSetup
from changefeed.runtime.web_server import WebLimits, serving
from changefeed.testing.fleet import FleetLog, LoggingObserver

QUICK = {
    "expiration": 2.0,
}


def quick_host(name: str, feed: MemoryFeed, leases: MemoryLeases, **more: Any) -> Host:
    """Return a host that does everything often; ``more`` is for ``Host``."""
    observer = LoggingObserver(FleetLog())
    often = {"poll_interval": 0.05}
    settings = load_settings(None, {"host": {"name": name}, "leases": QUICK, "feed": often})
    events = HostEvents(HostName(name))
    return Host(
        settings,
        feed=feed,
        container=leases,
        observers=ObserverSetup(lambda: observer, settings.observer, events, Random(1)),
        **more,
    )


@asynccontextmanager
async def running(*hosts: Host) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(x.run()) for x in hosts]
    try:
        yield
    finally:
        for host in hosts:
            host.stop()
        await asyncio.gather(*tasks)


@asynccontextmanager
async def served(answers: HostEndpoints, limits: WebLimits | None = None) -> AsyncIterator[str]:
    """Serve what answers give; yield the address."""
    with listening_socket(WebSettings()) as listening:
        async with serving(application(answers), limits or WebLimits(), listening):
            yield url_of(listening)
