"""What a host tells over HTTP."""

import asyncio
import gzip
import socket
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from changefeed.feeds.memory import MemoryFeed
from changefeed.host.endpoints import HostEndpoints
from changefeed.host.events import HostEvents
from changefeed.host.settings import WebSettings
from changefeed.host.web import listening_socket, url_of
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import UserError
from changefeed.runtime.web_server import most_connections
from tests.support.looking import until
from tests.support.processes import PATIENCE
from tests.support.web_hosts import quick_host, served


async def get(url: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        if answer.content_type == "application/json":
            return answer.status, await answer.json()
        return answer.status, await answer.text()


async def test_endpoints_tell_of_a_host_from_before_it_joins_until_it_stops() -> None:
    feed = MemoryFeed(2)
    feed.append("a", b"{}")
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    events = HostEvents(HostName("anna"), meters.get_meter("changefeed"))
    host = quick_host("anna", feed, MemoryLeases(), events=events)
    async with served(HostEndpoints("anna", registry, {"": host})) as url:
        assert await get(f"{url}/livez") == (200, {"host": "anna", "alive": True})
        problem = {
            "ready": False,
            "problems": ["it has not joined the fleet yet"],
            "ranges": [],
        }
        assert await get(f"{url}/readyz") == (503, {"host": "anna", **problem})

        running = asyncio.create_task(host.run())
        await until(  # a machine that is busy blocks the event loop, too
            lambda: (
                [x.changes for x in host.events.lags.values()] == [0, 0]
                and not host.health.loop_blocked
            ),
            within=PATIENCE,
        )
        ready = {"host": "anna", "ready": True, "problems": [], "ranges": []}
        assert await get(f"{url}/readyz") == (200, ready)

        status, shown = await get(f"{url}/leases")
        assert (status, shown["host"], shown["incarnation"]) == (200, "anna", host.incarnation)
        ranges = sorted(x.id for x in await feed.ranges())
        assert [(x["range"], x["epoch"], x["lag"]) for x in shown["ranges"]] == [
            (x, 1, 0) for x in ranges
        ]

        status, text = await get(f"{url}/metrics")
        values = dict(x.rsplit(" ", 1) for x in text.splitlines() if not x.startswith("#"))
        assert status == 200
        assert [v for k, v in values.items() if k.startswith("changefeed_lease_owned")] == [
            "2.0"
        ]
        assert [v for k, v in values.items() if k.startswith("changefeed_changes_total")] == [
            "1.0"
        ]

        host.stop()
        assert "it is stopping" in (await get(f"{url}/readyz"))[1]["problems"]
        await running
    meters.shutdown()


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_half_sent_requests_leave_descriptors_and_a_probe_its_answer() -> None:
    answers = HostEndpoints("anna", CollectorRegistry(), {})
    async with served(answers) as url, AsyncExitStack() as stack:
        before = open_descriptors()
        for _ in range(200):
            _, writer = await asyncio.open_connection("127.0.0.1", url.rpartition(":")[2])
            stack.callback(writer.close)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert (await get(f"{url}/livez"))[0] == 200
        ours = open_descriptors() - before - 200
        assert ours <= 64 + 1


async def test_before_there_is_a_host_it_lives_and_is_not_ready() -> None:
    async with served(HostEndpoints("anna", None, {})) as url:
        assert (await get(f"{url}/livez"))[0] == 200
        status, shown = await get(f"{url}/readyz")
        assert (status, shown["ready"]) == (503, False)
        assert "not been opened yet" in shown["problems"][0]
        assert (await get(f"{url}/leases"))[1]["ranges"] == []
        assert (await get(f"{url}/metrics"))[0] == 404


async def test_metrics_are_compressed_for_a_client_that_says_so() -> None:
    registry = CollectorRegistry()
    Gauge("anything", "to have a line", registry=registry).set(5)
    async with (
        served(HostEndpoints("anna", registry, {})) as url,
        aiohttp.ClientSession(f"{url}/", auto_decompress=False) as session,
    ):
        async with session.get("metrics", headers={"Accept-Encoding": "br, gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.headers["Vary"] == "Accept-Encoding"
            assert b"anything 5.0" in gzip.decompress(await answer.read())
        async with session.get("metrics", headers={"Accept-Encoding": "gzip;q=0"}) as answer:
            assert "Content-Encoding" not in answer.headers
            assert b"anything 5.0" in await answer.read()


async def test_the_event_loop_turns_while_metrics_are_made() -> None:
    """The registry waits for a turn of the loop: made on the loop, it would wait for ever."""
    loop, turned = asyncio.get_running_loop(), threading.Event()

    class Waiting(Collector):
        def collect(self) -> list[Metric]:
            loop.call_soon_threadsafe(turned.set)
            assert turned.wait(10), "the loop stands still"
            return []

    registry = CollectorRegistry()
    registry.register(Waiting())
    turned.clear()  # to register it collects, too
    answer = await HostEndpoints("anna", registry, {}).answer("/metrics")
    assert answer.status == 200


@pytest.mark.parametrize(("descriptors", "most"), [(1024, 64), (100, 25), (8, 4)])
def test_most_descriptors_are_left_to_the_host(descriptors: int, most: int) -> None:
    assert most_connections(64, descriptors) == most


def test_a_name_that_leads_nowhere_is_refused() -> None:
    wanted = WebSettings(bind="no.such.host.invalid")
    with pytest.raises(UserError, match=wanted.bind), listening_socket(wanted):
        pass


@pytest.mark.parametrize("bind", ["0.0.0.0", "::"])
@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("10.1.2.3", "10.1.2.3"),  # a pod: no other pod knows its name
        ("127.0.1.1", "web-0"),
        (socket.gaierror("no such name"), "web-0"),
    ],
)
def test_an_address_for_all_is_told_as_others_reach_this_machine(
    bind: str, found: str | OSError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listening_socket(WebSettings(bind=bind)) as listening:
        port = listening.getsockname()[1]
        answer = found if isinstance(found, OSError) else [(0, 0, 0, "", (found, 0))]
        monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=[answer]))
        monkeypatch.setattr(socket, "gethostname", lambda: "web-0")
        assert url_of(listening) == f"http://{told}:{port}"
