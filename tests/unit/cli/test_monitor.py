"""The lag of a fleet over HTTP, while no host runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer

from changefeed.cli.monitoring import monitor_application, monitored
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.watch import StatusWatch
from changefeed.host.settings import Settings
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import StoreUnavailable
from tests.support import make

pytestmark = pytest.mark.real_time

NAMES = ["orders", "people"]


class RestingFleet:
    """It has leases of three ranges at their beginning; if ``away``, they do not answer."""

    def __init__(self, *, away: bool = False) -> None:
        self._away = away
        self._feed = MemoryFeed(3)
        self._now = 0.0

    async def watch(self) -> StatusWatch:
        leases = _Away() if self._away else MemoryLeases()
        if not self._away:
            for found in await self._feed.ranges():
                await leases.create(make.lease(found, at="0"))
        return StatusWatch(make.store_source(leases, self._feed).look, lambda: self._now)

    def append(self, changes: int) -> None:
        for n in range(changes):
            self._feed.append(f"key-{n}")

    def pass_time(self) -> None:
        """Wait until the last look is old."""
        self._now += 5


class _Away(MemoryLeases):
    async def list(self) -> list[Lease]:
        raise StoreUnavailable("the lease container does not answer")


@asynccontextmanager
async def monitoring(**fleets: RestingFleet) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    """Serve fleets by their processors; ``_`` has no name."""
    settings = {name.strip("_"): Settings() for name in fleets}
    app = monitor_application(
        {
            name: monitored(name, settings, await x.watch(), MemoryLeases())
            for name, x in zip(settings, fleets.values(), strict=True)
        },
        lag_per_host=10,
    )
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_fleet_at_rest_is_woken_by_what_is_appended() -> None:
    fleet = RestingFleet()
    async with monitoring(_=fleet) as client:
        assert await (await client.get("/scale")).json() == {"desired_hosts": 0}
        fleet.append(15)
        assert await (await client.get("/scale")).json() == {"desired_hosts": 0}, "looked at"
        fleet.pass_time()
        assert await (await client.get("/scale")).json() == {"desired_hosts": 2}
        text = await (await client.get("/metrics")).text()
    assert "changefeed_desired_hosts 2.0" in text
    lags = [float(x.split()[1]) for x in text.splitlines() if x.startswith("changefeed_lag{")]
    assert (len(lags), sum(lags)) == (3, 15)
    assert 'state="unowned"' in text


async def test_a_container_that_does_not_answer_is_said_and_scales_nothing() -> None:
    async with monitoring(_=RestingFleet(away=True)) as client:
        answer = await client.get("/scale")
        assert answer.status == 503
        assert await answer.json() == {"error": "the lease container does not answer"}
        assert (await client.get("/metrics")).status == 503
        assert (await client.get("/livez")).status == 200


async def test_fleets_of_several_processors_have_pages_and_labels_of_their_own() -> None:
    orders, people = RestingFleet(), RestingFleet()
    orders.append(15)
    people.append(8)
    async with monitoring(orders=orders, people=people) as client:
        assert await (await client.get("/scale")).json() == {"desired_hosts": 3}
        text = await (await client.get("/metrics")).text()
        assert str((await client.get("/")).url.path) == "/processors/orders/"
        page = await (await client.get("/processors/people/page/state")).json()
    lags = [x.split() for x in text.splitlines() if x.startswith("changefeed_lag{")]
    of = {x: sum(float(n) for labels, n in lags if f'processor="{x}"' in labels) for x in NAMES}
    assert of == {"orders": 15, "people": 8}
    assert 'changefeed_desired_hosts{processor="people"} 1.0' in text
    assert (page["view"]["processor"], page["view"]["processors"]) == ("people", NAMES)


async def test_where_one_of_several_does_not_answer_pages_and_metrics_of_the_others_do() -> (
    None
):
    async with monitoring(orders=RestingFleet(), people=RestingFleet(away=True)) as client:
        scale = await client.get("/scale")
        assert (scale.status, "people" in await scale.text()) == (503, True)
        text = await (await client.get("/metrics")).text()
        assert 'changefeed_desired_hosts{processor="orders"}' in text
        assert "people" not in text
        assert (await client.get("/processors/people/page/state")).status == 503
        assert (await client.get("/processors/orders/page/state")).status == 200
