"""What a host tells over HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.settings import WebSettings, load_settings
from changefeed.host.web import AddressRefused, listening_socket, serving, url_of
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from tests.support.fleet import Log, LoggingObserver

pytestmark = pytest.mark.real_time

WEB = WebSettings()


@asynccontextmanager
async def told_about(
    feed: MemoryFeed,
    container: MemoryLeases,
    *,
    meters: MeterProvider,
    registry: CollectorRegistry,
) -> AsyncIterator[tuple[Host, str]]:
    """A host that has not joined yet, and the address of its endpoints."""
    quick = {"balance_interval": 0.05, "renew_interval": 0.1, "expiration": 2.0}
    wanted = load_settings(
        None, {"host": {"name": "anna"}, "leases": quick, "feed": {"lag_interval": 0.05}}
    )
    observer = LoggingObserver(Log())
    host = Host(
        wanted,
        feed=feed,
        container=container,
        make_observer=lambda *_: observer,
        events=HostEvents(HostName("anna"), meters.get_meter("changefeed")),
    )
    with listening_socket(WEB) as listening:
        async with serving(listening, host, registry, wanted.leases):
            yield host, url_of(listening)


async def get(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        if answer.content_type == "application/json":
            return answer.status, await answer.json()
        return answer.status, await answer.text()


async def until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


async def test_endpoints_tell_of_a_host_from_before_it_joins_until_it_stops() -> None:
    feed = MemoryFeed(2)
    feed.append("a", b"{}")
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    async with told_about(feed, MemoryLeases(), meters=meters, registry=registry) as (
        host,
        url,
    ):
        assert await get(f"{url}/livez") == (200, {"host": "anna", "alive": True})
        problem = {"ready": False, "problems": ["it has not joined the fleet yet"]}
        assert await get(f"{url}/readyz") == (503, {"host": "anna", **problem})

        running = asyncio.create_task(host.run())
        await until(lambda: sorted(host.lags.values()) == [0, 0])
        ready = {"host": "anna", "ready": True, "problems": []}
        assert await get(f"{url}/readyz") == (200, ready)

        status, shown = await get(f"{url}/leases")
        assert (status, shown["host"], shown["incarnation"]) == (200, "anna", host.incarnation)
        ranges = sorted(x.id for x in await feed.ranges())
        assert [(x["range"], x["epoch"], x["lag"]) for x in shown["leases"]] == [
            (x, 1, 0) for x in ranges
        ]

        status, text = await get(f"{url}/metrics")
        values = dict(x.rsplit(" ", 1) for x in text.splitlines() if not x.startswith("#"))
        assert status == 200
        assert [v for k, v in values.items() if k.startswith("changefeed_leases_owned")] == [
            "2.0"
        ]
        assert [v for k, v in values.items() if k.startswith("changefeed_changes_total")] == [
            "1.0"
        ]

        host.stop()
        assert (await get(f"{url}/readyz"))[1]["problems"] == ["it is stopping"]
        await running
    meters.shutdown()


def test_a_port_in_use_is_refused_with_the_settings_to_change() -> None:
    with listening_socket(WEB) as taken:
        port = taken.getsockname()[1]
        wanted = WebSettings(port=port)
        with (
            pytest.raises(AddressRefused, match=f"port {port} of 127.0.0.1 is in use"),
            listening_socket(wanted),
        ):
            pass


def test_a_name_that_leads_nowhere_is_refused() -> None:
    wanted = WebSettings(bind="no.such.host.invalid")
    with (
        pytest.raises(AddressRefused, match=r"no\.such\.host\.invalid"),
        listening_socket(wanted),
    ):
        pass


def test_an_address_for_all_is_told_by_the_name_of_the_machine() -> None:
    with listening_socket(WebSettings(bind="0.0.0.0")) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening) == f"http://{socket.gethostname()}:{port}"
