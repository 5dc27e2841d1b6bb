"""Pings between brokers of one process, which may be cut."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.feeds.errors import FeedUnavailable
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.members import Heartbeat, Ping
from changefeed.log.brokers.run_core import open_core
from changefeed.log.core_settings import CoreSettings
from changefeed.log.stores.store import ObjectStore


class Wires:
    """Brokers have their names for addresses. ``cut``: who does not reach whom."""

    def __init__(self) -> None:
        self.cut: set[tuple[str, str]] = set()
        self._cores: dict[str, BrokerCore] = {}

    def ping(self, of: str) -> Ping:
        async def ping(address: str, heartbeat: Heartbeat) -> Heartbeat:
            core = self._cores.get(address)
            if core is None or (of, address) in self.cut:
                raise FeedUnavailable(f"{of} does not reach {address!r}")
            return core.presence.pinged(heartbeat)

        return ping

    @asynccontextmanager
    async def broker(
        self, store: ObjectStore, name: str, settings: CoreSettings | None = None
    ) -> AsyncIterator[BrokerCore]:
        """Run a broker that the others reach. To leave the block is a crash."""
        async with open_core(
            store,
            name,
            address=name,
            settings=settings,
            ping=self.ping(name),
            clock=asyncio.get_running_loop().time,
        ) as core:
            self._cores[name] = core
            try:
                yield core
            finally:
                del self._cores[name]
