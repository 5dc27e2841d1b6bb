"""The lag of a fleet over HTTP, while no host runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer

from changefeed.cli.exporter import exporter_application
from changefeed.cli.looks import Looks
from changefeed.feeds.feed import Continuation
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.settings import Settings
from changefeed.host.snapshot import FleetInspector
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases

pytestmark = pytest.mark.real_time


class Away(MemoryLeases):
    async def list(self) -> list[Lease]:
        raise ContainerUnavailable("the lease container does not answer")


@asynccontextmanager
async def exporting(
    feed: MemoryFeed, container: LeaseContainer, now: list[float]
) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    fleet = FleetInspector(Settings(), container, feed, None)
    app = exporter_application(Looks(fleet, lambda: now[0]), lag_per_host=10)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_fleet_at_rest_is_woken_by_what_is_appended() -> None:
    feed, container, now = MemoryFeed(3), MemoryLeases(), [0.0]
    for found in await feed.ranges():
        await container.create(Lease(range=found, continuation=Continuation("0")))
    async with exporting(feed, container, now) as client:
        assert await (await client.get("/scale")).json() == {"desired_hosts": 0}
        for n in range(15):
            feed.append(f"key-{n}")
        assert await (await client.get("/scale")).json() == {"desired_hosts": 0}, "looked at"
        now[0] = 5.0
        assert await (await client.get("/scale")).json() == {"desired_hosts": 2}
        text = await (await client.get("/metrics")).text()
    assert "changefeed_hosts_desired 2.0" in text
    lags = [float(x.split()[1]) for x in text.splitlines() if x.startswith("changefeed_lag{")]
    assert (len(lags), sum(lags)) == (3, 15)
    assert 'state="unowned"' in text


async def test_a_container_that_does_not_answer_is_said_and_scales_nothing() -> None:
    async with exporting(MemoryFeed(1), Away(), [0.0]) as client:
        answer = await client.get("/scale")
        assert (answer.status, await answer.json()) == (
            503,
            {"error": "the lease container does not answer"},
        )
        assert (await client.get("/metrics")).status == 503
        assert (await client.get("/livez")).status == 200
