"""When the client is made to read the regions of its account again."""

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.cosmos.exceptions import CosmosHttpResponseError

from changefeed.feeds.cosmos.failover import Failover

http_error: Any = CosmosHttpResponseError  # it has no types


class Container:
    """Notes when the client was told that writes have moved, and when a region was tried."""

    def __init__(self) -> None:
        self.told: list[float] = []
        self.tried: list[float] = []

    async def delete_item(self, *_: object, raw_request_hook: Any, **__: object) -> None:
        with pytest.raises(CosmosHttpResponseError) as told:
            raw_request_hook(None)
        assert (told.value.status_code, told.value.sub_status) == (403, 3)
        self.told.append(asyncio.get_running_loop().time())
        raw_request_hook(None)  # which sends nothing
        raise AssertionError("it was sent")

    async def read(self, **_: object) -> None:
        self.tried.append(asyncio.get_running_loop().time())
        raise ServiceResponseError("silent")


async def fails(error: Exception, seconds: float = 0.0) -> None:
    await asyncio.sleep(seconds)
    raise error


async def looks(container: Container, *errors: Exception, seconds: float = 0.0) -> int:
    """Send a request for each error, of so many seconds. Return how often it looked."""
    async with Failover.opened(cast("Any", container)) as failover:
        for error in errors:
            with suppress(Exception):
                await failover.ask(fails(error, seconds))
        await asyncio.sleep(5)
    assert len(container.told) == len(container.tried)
    return len(container.told)


@pytest.mark.parametrize(
    ("error", "looked"),
    [
        (ServiceRequestError("refused"), 1),
        (ServiceResponseError("broken off"), 1),
        (http_error(status_code=503), 1),
        (http_error(status_code=500), 1),
        (http_error(status_code=429), 0),
        (http_error(status_code=404), 0),
        (http_error(status_code=412), 0),
        (ValueError("of ours"), 0),
    ],
)
async def test_an_answer_is_no_reason_to_look_and_none_is_one(
    error: Exception, looked: int
) -> None:
    assert await looks(Container(), error) == looked


async def test_a_slow_answer_is_a_reason_also_where_its_caller_does_not_wait() -> None:
    assert await looks(Container(), ValueError(), seconds=1.9) == 0
    assert await looks(Container(), ValueError(), seconds=2.1) == 1
    container = Container()
    async with Failover.opened(cast("Any", container)) as failover:
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await failover.ask(asyncio.Event().wait())
        assert failover.suspected_at < 0
        await asyncio.sleep(2)
        assert len(container.told) == 1
        assert failover.suspected_at > 0


async def test_it_looks_again_as_long_as_requests_fail_and_less_and_less_often() -> None:
    container = Container()
    async with Failover.opened(cast("Any", container)) as failover:
        for _ in range(600):
            await asyncio.sleep(0.1)
            with suppress(ServiceRequestError):
                await failover.ask(fails(ServiceRequestError("refused")))
        between = [y - x for x, y in zip(container.told, container.told[1:], strict=False)]
        assert [round(x) for x in between] == [1, 2, 4, 8, 10, 10, 10, 10]
        await asyncio.sleep(30)
        count = len(container.told)
        with suppress(ServiceRequestError):
            await failover.ask(fails(ServiceRequestError("refused")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(container.told) == count + 1  # at once
