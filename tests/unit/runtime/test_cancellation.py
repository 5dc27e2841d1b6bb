"""A call whose client loses a cancellation is cancelled all the same."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from changefeed.feeds.memory import MemoryFeed
from changefeed.feeds.timeouts import bounded_feed
from changefeed.leases.errors import ContainerUnavailable
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.timeouts import BoundedContainer
from changefeed.runtime.cancellation import keep_cancellation


async def swallows() -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    return "answer"


async def fails() -> str:
    await swallows()
    raise ConnectionError("lost")


@pytest.mark.parametrize("call", [swallows, fails])
async def test_a_swallowed_cancellation_is_raised(call: Callable[[], Awaitable[str]]) -> None:
    task = asyncio.create_task(keep_cancellation(call()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_answers_and_errors_of_calls_are_their_own() -> None:
    async def answers() -> int:
        return 1

    assert await keep_cancellation(answers()) == 1
    with pytest.raises(ZeroDivisionError):
        await keep_cancellation(_divide())


async def _divide() -> float:
    return 1 / 0


class _SwallowingLeases(MemoryLeases):
    async def list(self) -> Any:
        return await swallows()


class _SwallowingFeed(MemoryFeed):
    async def ranges(self) -> Any:
        return await swallows()


def container() -> BoundedContainer:
    return BoundedContainer(_SwallowingLeases(), timeout=60, on_call=lambda _: None)


async def test_a_loop_over_a_container_that_swallows_ends_when_it_is_cancelled() -> None:
    async def for_ever() -> None:
        while True:
            await container().list()

    async with asyncio.timeout(10):
        await _cancelled(asyncio.create_task(for_ever()))


async def test_a_loop_over_a_feed_that_swallows_ends_when_it_is_cancelled() -> None:
    feed = bounded_feed(_SwallowingFeed(), timeout=60)

    async def for_ever() -> None:
        while True:
            await feed.ranges()

    async with asyncio.timeout(10):
        await _cancelled(asyncio.create_task(for_ever()))


async def _cancelled(task: asyncio.Task[None]) -> None:
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_call_that_swallows_the_end_of_its_time_was_not_answered() -> None:
    with pytest.raises(ContainerUnavailable, match="did not answer list within 60 s"):
        await container().list()
