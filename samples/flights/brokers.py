"""The brokers of a run: their processes, and which of them has how many ranges."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from changefeed.feeds.brokers.access import BrokerAccess
from changefeed.feeds.brokers.address import parse_address
from changefeed.feeds.brokers.client import BrokerClient
from changefeed.feeds.errors import FeedUnavailable

from .processes import COMMAND

# Short times, so that an era can be seen to end. The defaults are about twice these.
_SETTINGS = {
    "membership.expiration": 4,
    "log.format": "json",
}
_LOOK_INTERVAL = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerJob:
    """What all brokers are to do, and the port of each."""

    cluster: str
    logs: Path
    ports: Mapping[str, int]

    def command(self, name: str) -> Sequence[str]:
        return [
            *(*COMMAND, "broker", "--stop-at-eof", f"--name={name}"),
            *(f"--cluster={self.cluster}", f"--set=web.port={self.ports[name]}"),
            *(f"--set={key}={value}" for key, value in _SETTINGS.items()),
        ]

    def address(self, collection: str) -> str:
        """Return the address of a collection; any broker that lives is enough to find it."""
        hosts = ",".join(f"127.0.0.1:{x}" for x in self.ports.values())
        return f"brokers://{hosts}/{collection}"


def free_ports(names: Sequence[str]) -> Mapping[str, int]:
    """Return a port for each name that no program has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = [x.getsockname()[1] for x in sockets]
    for x in sockets:
        x.close()
    return dict(zip(names, ports, strict=True))


class Division:
    """How the cluster has divided the open ranges among brokers. Make it with ``open``."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client
        self._last = ""

    @classmethod
    @asynccontextmanager
    async def open(cls, address: str) -> "AsyncIterator[Division]":
        scheme, _, place = address.partition(":")
        async with BrokerClient.open(parse_address(scheme, place), BrokerAccess()) as client:
            yield cls(client)

    async def create_collection(self, parts: int) -> None:
        """Create it as soon as a broker answers."""
        while True:
            try:
                await self._client.create(parts)
            except FeedUnavailable:
                await asyncio.sleep(_LOOK_INTERVAL)
            else:
                return

    async def in_words(self) -> str:
        """Return it as it is now, or as it was before where no broker can say."""
        try:
            routes = await self._client.routes()
        except FeedUnavailable:
            return self._last
        topology = routes.topology
        share = Counter(x.broker for x in routes.partitions.open)
        shares = ", ".join(f"{name} {share[name]}" for name in sorted(share))
        state = " (ending)" if topology.ending else ""
        self._last = f"era {topology.era}{state}: {shares}"
        return self._last

    async def is_among(self, brokers: Sequence[str]) -> bool:
        """Whether an era is open that has just these brokers."""
        try:
            topology = (await self._client.routes()).topology
        except FeedUnavailable:
            return False
        return not topology.ending and {x.name for x in topology.brokers} == {*brokers}
