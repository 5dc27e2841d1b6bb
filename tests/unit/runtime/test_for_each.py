"""The same call for many things: how many at once, in which order, and what a failure ends."""

import asyncio

import pytest

from changefeed.runtime.cancellation import keep_cancellation
from changefeed.runtime.for_each import for_each


class Calls:
    """Calls that take ``n`` seconds, and fail where asked to."""

    def __init__(self, *, failing: int | None = None) -> None:
        self._failing = failing
        self.begun: list[int] = []
        self.running: set[int] = set()
        self.most = 0

    async def take(self, n: int) -> str:
        self.begun.append(n)
        self.running.add(n)
        self.most = max(self.most, len(self.running))
        try:
            await asyncio.sleep(n)
            if n == self._failing:
                raise KeyError(n)
        finally:
            self.running.discard(n)
        return f"took {n}"


async def test_results_come_in_the_order_of_the_items() -> None:
    assert await for_each([3, 1, 2], Calls().take, at_once=3) == ["took 3", "took 1", "took 2"]
    assert await for_each([], Calls().take, at_once=3) == []


async def test_no_more_run_at_once_than_asked_for() -> None:
    calls = Calls()
    await for_each(range(1, 20), calls.take, at_once=4)
    assert calls.most == 4


async def test_the_first_failure_ends_the_others_and_is_raised_as_it_is() -> None:
    calls = Calls(failing=2)
    with pytest.raises(KeyError, match="2"):
        await for_each([3600, 2, 7200], calls.take, at_once=3)
    assert calls.running == set()


async def test_what_has_not_begun_does_not_begin_after_a_failure() -> None:
    calls = Calls(failing=1)
    with pytest.raises(KeyError):
        await for_each([1, 2, 3], calls.take, at_once=1)
    assert calls.begun == [1]


async def test_a_cancelled_caller_leaves_no_call_behind() -> None:
    calls = Calls()
    asking = asyncio.create_task(for_each([3600, 7200], calls.take, at_once=2))
    await asyncio.sleep(1)
    assert calls.running == {3600, 7200}
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert calls.running == set()


async def test_a_failure_is_no_cancellation_of_the_caller() -> None:
    with pytest.raises(KeyError):
        await keep_cancellation(for_each([3600, 1], Calls(failing=1).take, at_once=2))
