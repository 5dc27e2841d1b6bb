"""Several calls at the same time: what they return, and what a failure ends."""

import asyncio
from contextlib import suppress

import pytest

from changefeed.runtime.calls import gather_or_cancel


class Calls:
    """Calls that take ``seconds``; those that still run are known."""

    def __init__(self) -> None:
        self.running: set[float] = set()

    async def take(self, seconds: float, error: Exception | None = None) -> str:
        self.running.add(seconds)
        try:
            await asyncio.sleep(seconds)
            if error is not None:
                raise error
        finally:
            self.running.discard(seconds)
        return f"took {seconds:g}"


async def test_results_come_in_the_order_of_the_calls_after_the_slowest_of_them() -> None:
    calls, clock = Calls(), asyncio.get_running_loop().time
    began = clock()
    assert await gather_or_cancel(calls.take(3), calls.take(1)) == ("took 3", "took 1")
    assert clock() - began == pytest.approx(3)
    assert await gather_or_cancel() == ()


async def test_a_cancelled_caller_leaves_no_call_behind_and_is_cancelled_whatever_fails() -> (
    None
):
    calls = Calls()

    async def fails_when_ended() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        raise KeyError("ended")

    asking = asyncio.create_task(gather_or_cancel(fails_when_ended(), calls.take(3600)))
    await asyncio.sleep(1)
    assert calls.running == {3600}
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert calls.running == set()
