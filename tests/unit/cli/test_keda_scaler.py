"""KEDA's external scaler, called over gRPC with bytes as KEDA's own code writes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from changefeed.cli.keda_scaler import Scaler, serving_scaler
from changefeed.cli.looks import Looks
from changefeed.feeds.feed import Continuation
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.settings import Settings
from changefeed.host.snapshot import FleetInspector
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import UserError

pytestmark = pytest.mark.real_time

REFERENCE = b"\x0a\x01c\x12\x01n"  # 1: name "c", 2: namespace "n"
YES, NO = b"\x08\x01", b""  # 1: result


def with_lag_per_host(value: bytes) -> bytes:
    """Return a reference with an entry of its map, field 3."""
    entry = b"\x0a\x0alagPerHost\x12" + bytes([len(value)]) + value
    return REFERENCE + b"\x1a" + bytes([len(entry)]) + entry


def metrics_of(reference: bytes) -> bytes:
    """Return a request: 1: the reference, 2: the name of the metric."""
    return b"\x0a" + bytes([len(reference)]) + reference + b"\x12\x0ddesired_hosts"


def value(hosts: int) -> bytes:
    """Return a response with a metric: 1: its name, 2: as a whole number, 3: as a double."""
    number = {1: b"\xf0\x3f", 2: b"\x00\x40", 3: b"\x08\x40"}[hosts]
    fields = b"\x0a\x0ddesired_hosts\x10" + bytes([hosts]) + b"\x19" + b"\0" * 6 + number
    return b"\x0a" + bytes([len(fields)]) + fields


class Away(MemoryLeases):
    async def list(self) -> list[Lease]:
        raise ContainerUnavailable("the lease container does not answer")


class Scene:
    def __init__(self, container: LeaseContainer | None = None) -> None:
        self.feed = MemoryFeed(3)
        self.container = container or MemoryLeases()
        self.now = 0.0

    async def fleet_at_rest(self) -> None:
        for found in await self.feed.ranges():
            await self.container.create(Lease(range=found, continuation=Continuation("0")))

    def append(self, changes: int) -> None:
        for n in range(changes):
            self.feed.append(f"key-{n}")
        self.now += 5

    @asynccontextmanager
    async def served(self) -> AsyncIterator["Client"]:
        fleet = FleetInspector(Settings(), self.container, self.feed, None)
        scaler = Scaler(Looks(fleet, lambda: self.now), lag_per_host=10)
        async with (
            serving_scaler(scaler, "127.0.0.1", 0) as port,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            yield Client(channel)


class Client:
    """Calls with bytes, and gets bytes."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    async def call(self, method: str, request: bytes) -> bytes:
        call = self._channel.unary_unary(f"/externalscaler.ExternalScaler/{method}")
        answer: bytes = await call(request, timeout=10)
        return answer

    def stream(self, method: str, request: bytes) -> Any:
        return self._channel.unary_stream(f"/externalscaler.ExternalScaler/{method}")(request)


async def test_a_fleet_at_rest_is_not_active_until_something_is_appended() -> None:
    scene = Scene()
    await scene.fleet_at_rest()
    async with scene.served() as client:
        assert await client.call("IsActive", REFERENCE) == NO
        scene.append(15)
        assert await client.call("IsActive", REFERENCE) == YES
        assert await client.call("GetMetrics", metrics_of(REFERENCE)) == value(2)
        few = metrics_of(with_lag_per_host(b"1"))
        assert await client.call("GetMetrics", few) == value(3), "as many as there are ranges"


async def test_the_target_is_one_for_each_host() -> None:
    async with Scene().served() as client:
        spec = b"\x0a\x0ddesired_hosts\x10\x01\x19" + b"\0" * 6 + b"\xf0\x3f"
        expected = b"\x0a" + bytes([len(spec)]) + spec
        assert await client.call("GetMetricSpec", REFERENCE) == expected


async def test_a_push_is_made_at_once_and_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("changefeed.cli.keda_scaler._LOOK_EVERY", 0.01)
    scene = Scene()
    await scene.fleet_at_rest()
    async with scene.served() as client, asyncio.timeout(10):
        pushed = client.stream("StreamIsActive", REFERENCE)
        assert await pushed.read() == NO
        scene.append(1)
        assert await pushed.read() == YES
        pushed.cancel()


async def test_a_container_that_does_not_answer_is_unavailable_and_pushes_nothing() -> None:
    async with Scene(Away()).served() as client:
        for method, request in (("IsActive", REFERENCE), ("GetMetrics", metrics_of(REFERENCE))):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.call(method, request)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert caught.value.details() == "the lease container does not answer"
        pushed = client.stream("StreamIsActive", REFERENCE)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await pushed.read()


@pytest.mark.parametrize("number", [b"0", b"-1", b"many", b""])
async def test_metadata_that_are_wrong_are_refused_with_advice(number: bytes) -> None:
    async with Scene().served() as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call("IsActive", with_lag_per_host(number))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "from 1 on" in (caught.value.details() or "")
        with pytest.raises(grpc.aio.AioRpcError):
            await client.stream("StreamIsActive", with_lag_per_host(number)).read()


async def test_what_keda_need_not_find_is_unimplemented() -> None:
    async with Scene().served() as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.stream("StreamMetricSpec", REFERENCE).read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_port_that_is_in_use_is_refused_with_advice() -> None:
    scaler = Scaler(Looks(FleetInspector(Settings(), Away(), None, None), lambda: 0.0), 10)
    async with serving_scaler(scaler, "127.0.0.1", 0) as port:
        with pytest.raises(UserError, match="choose another --scaler-port"):
            async with serving_scaler(scaler, "127.0.0.1", port):
                pass
