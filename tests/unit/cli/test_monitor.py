"""The lag of a fleet over HTTP, while no host runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer

from changefeed.cli.monitoring import actions_of, monitor_application, page_of
from changefeed.host.settings import Settings
from changefeed.leases.memory import MemoryLeases
from tests.support.resting_fleet import RestingFleet

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def monitoring(fleet: RestingFleet) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    watch, settings = await fleet.watch(), Settings()
    app = monitor_application(
        watch,
        page_of(settings, watch, None, acts=False),
        actions_of(settings, None, MemoryLeases(), acts=False),
        lag_per_host=10,
    )
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_fleet_at_rest_is_woken_by_what_is_appended() -> None:
    fleet = RestingFleet()
    async with monitoring(fleet) as client:
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
    async with monitoring(RestingFleet(away=True)) as client:
        answer = await client.get("/scale")
        assert answer.status == 503
        assert await answer.json() == {"error": "the lease container does not answer"}
        assert (await client.get("/metrics")).status == 503
        assert (await client.get("/livez")).status == 200
