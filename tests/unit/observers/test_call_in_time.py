"""A call that takes too long, or does not end when it is cancelled."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.call import CalledObserver
from changefeed.observers.errors import AttemptFailed, ObserverStuck
from changefeed.observers.observer import CloseReason, Context
from tests.support import make
from tests.support.logs import captured_logs
from tests.support.looking import now
from tests.support.observers import Bare

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


@pytest.mark.parametrize("call", ["open", "process"])
async def test_an_attempt_that_takes_too_long_is_cancelled_and_has_failed(call: str) -> None:
    limited = CalledObserver(Slow(1000), seconds=10)
    with pytest.raises(AttemptFailed, match=f"'{call}' did not end within 10 s"):
        await (limited.open(CONTEXT) if call == "open" else limited.process(CONTEXT, BATCH))
    assert now() == 10
    with pytest.raises(AttemptFailed, match="'process' did not end"):  # though it returned then
        await CalledObserver(Deaf(1), seconds=10).process(CONTEXT, BATCH)


async def test_what_it_raises_when_it_is_cancelled_is_in_the_log() -> None:
    limited = CalledObserver(Slow(1000, end=OSError("disk")), seconds=10)
    with captured_logs() as logs, pytest.raises(AttemptFailed):
        await limited.process(CONTEXT, BATCH)
    assert [(x["event"], x["error"]) for x in logs] == [
        ("observer failed after it was cancelled", "disk")
    ]


async def test_a_cancelled_call_that_does_not_end_in_the_time_it_had_is_stuck() -> None:
    inner = Slow(1000, after_cancel=1000)
    task = asyncio.create_task(CalledObserver(inner, seconds=10).process(CONTEXT, BATCH))
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(ObserverStuck):
        await task
    assert now() == 15


class Deaf(Bare):
    """Swallows so many cancellations."""

    def __init__(self, cancellations: int) -> None:
        self._left = cancellations

    async def process(self, _context: Context, _changes: Sequence[Change]) -> None:
        while self._left:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
            self._left -= 1


@pytest.mark.parametrize("seconds", [None, 100])
@pytest.mark.parametrize(
    ("cancellations", "end"),
    [
        (2, 2),  # it has ended with the second one
        (3, 3),
        (9, 4),  # it was left behind
    ],
)
async def test_each_cancellation_is_passed_on_and_the_fourth_is_not_waited_for(
    cancellations: int, end: float, seconds: float | None
) -> None:
    called = CalledObserver(Deaf(cancellations), seconds=seconds)
    task, ends = asyncio.create_task(called.process(CONTEXT, BATCH)), list[float]()
    task.add_done_callback(lambda _: ends.append(now()))
    for _ in range(4):
        await asyncio.sleep(1)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends == [end]
