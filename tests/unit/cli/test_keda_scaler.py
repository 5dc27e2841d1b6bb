"""KEDA's external scaler, called over gRPC with bytes as KEDA's own code writes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from changefeed.cli.keda_scaler import Scaler, serving_scaler
from changefeed.runtime.errors import UserError
from tests.support.resting_fleet import RestingFleet

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


@asynccontextmanager
async def served(fleet: RestingFleet) -> AsyncIterator["Client"]:
    scaler = Scaler(await fleet.watch(), lag_per_host=10)
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
    fleet = RestingFleet()
    async with served(fleet) as client:
        assert await client.call("IsActive", REFERENCE) == NO
        fleet.append(15)
        fleet.pass_time()
        assert await client.call("IsActive", REFERENCE) == YES
        assert await client.call("GetMetrics", metrics_of(REFERENCE)) == value(2)
        few = metrics_of(with_lag_per_host(b"1"))
        assert await client.call("GetMetrics", few) == value(3), "as many as there are ranges"


async def test_the_target_is_one_for_each_host_and_what_keda_need_not_find_is_left_out() -> (
    None
):
    async with served(RestingFleet()) as client:
        spec = b"\x0a\x0ddesired_hosts\x10\x01\x19" + b"\0" * 6 + b"\xf0\x3f"
        expected = b"\x0a" + bytes([len(spec)]) + spec
        assert await client.call("GetMetricSpec", REFERENCE) == expected
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.stream("StreamMetricSpec", REFERENCE).read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_push_is_made_at_once_and_when_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("changefeed.cli.keda_scaler._LOOK_EVERY", 0.01)
    fleet = RestingFleet()
    async with served(fleet) as client, asyncio.timeout(10):
        pushed = client.stream("StreamIsActive", REFERENCE)
        assert await pushed.read() == NO
        fleet.append(1)
        fleet.pass_time()
        assert await pushed.read() == YES
        pushed.cancel()


async def test_a_container_that_does_not_answer_is_unavailable_and_pushes_nothing() -> None:
    async with served(RestingFleet(away=True)) as client:
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
    async with served(RestingFleet()) as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.call("IsActive", with_lag_per_host(number))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "from 1 on" in (caught.value.details() or "")
        with pytest.raises(grpc.aio.AioRpcError):
            await client.stream("StreamIsActive", with_lag_per_host(number)).read()


async def test_a_port_that_is_in_use_is_refused_with_advice() -> None:
    scaler = Scaler(await RestingFleet().watch(), 10)
    async with serving_scaler(scaler, "127.0.0.1", 0) as port:
        with pytest.raises(UserError, match="--scaler-port"):
            async with serving_scaler(scaler, "127.0.0.1", port):
                pass
