import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.errors import ObserverStuck, ObserverTimedOut
from changefeed.observers.middleware.retry import Retrying, RetrySettings
from changefeed.observers.middleware.timeout import TimeLimitedObserver
from changefeed.observers.observer import CloseReason, Context
from tests.support import make

CONTEXT = make.context()
BATCH = [make.change(1)]


class Slow:
    """Takes so long; once cancelled, so long again, before it says what ``end`` says."""

    def __init__(
        self, seconds: float, *, after_cancel: float = 0, end: BaseException | None = None
    ) -> None:
        self._seconds = seconds
        self._after_cancel = after_cancel
        self._end = end
        self.calls: list[str] = []

    async def open(self, _context: Context) -> None:
        self.calls.append("open")
        await self._take_time()

    async def process(self, _context: Context, _changes: Sequence[Change]) -> None:
        self.calls.append("process")
        await self._take_time()

    async def close(self, _context: Context, _reason: CloseReason) -> None:
        self.calls.append("close")

    async def _take_time(self) -> None:
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(self._after_cancel)
            if self._end is not None:
                raise self._end from None
            raise


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_what_ends_in_time_is_left_alone() -> None:
    inner = Slow(9)
    limited = TimeLimitedObserver(inner, 10)
    await limited.open(CONTEXT)
    await limited.process(CONTEXT, BATCH)
    await limited.close(CONTEXT, CloseReason.STOPPING)
    assert inner.calls == ["open", "process", "close"]
    assert now() == 18


@pytest.mark.parametrize("call", ["open", "process"])
async def test_an_attempt_that_takes_too_long_is_cancelled_and_has_failed(call: str) -> None:
    limited = TimeLimitedObserver(Slow(1000), 10)
    with pytest.raises(ObserverTimedOut, match=f"'{call}' did not end within 10 s"):
        await (limited.open(CONTEXT) if call == "open" else limited.process(CONTEXT, BATCH))
    assert now() == 10


async def test_what_ends_within_the_grace_has_merely_failed() -> None:
    with pytest.raises(ObserverTimedOut):
        await TimeLimitedObserver(Slow(1000, after_cancel=4), 10).process(CONTEXT, BATCH)
    assert now() == 14


async def test_what_it_raises_when_it_is_cancelled_is_the_error_of_the_attempt() -> None:
    limited = TimeLimitedObserver(Slow(1000, end=OSError("disk")), 10)
    with pytest.raises(OSError, match="disk"):
        await limited.process(CONTEXT, BATCH)


async def test_what_ends_not_even_then_is_stuck_and_not_tried_again() -> None:
    inner = Slow(1000, after_cancel=1000)
    settings = RetrySettings(attempts=5)
    with pytest.raises(ObserverStuck, match=r"'process' did not end within 15 s"):
        await Retrying(TimeLimitedObserver(inner, 10), settings, random=Random(1)).process(
            CONTEXT, BATCH
        )
    assert now() == 15
    assert inner.calls == ["process"]


async def test_a_cancellation_is_passed_on_and_waited_for() -> None:
    inner = Slow(1000, after_cancel=2, end=OSError("late"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await TimeLimitedObserver(inner, 10).process(CONTEXT, BATCH)
    assert now() == 5


async def test_a_cancelled_call_that_does_not_end_in_the_time_it_had_is_stuck() -> None:
    inner = Slow(1000, after_cancel=1000)
    task = asyncio.create_task(TimeLimitedObserver(inner, 10).process(CONTEXT, BATCH))
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(ObserverStuck):
        await task
    assert now() == 15


async def test_a_second_cancellation_gives_up_at_once() -> None:
    task = asyncio.create_task(
        TimeLimitedObserver(Slow(1000, after_cancel=1000), 10).process(CONTEXT, BATCH)
    )
    for _ in range(2):
        await asyncio.sleep(1)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert now() == 2
