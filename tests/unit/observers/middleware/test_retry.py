import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.errors import ObserverFailed, ObserverRefused
from changefeed.observers.middleware import retry
from changefeed.observers.middleware.retry import Retrying, RetrySettings
from changefeed.observers.observer import CloseReason, Context
from tests.support import make

CONTEXT = make.context()
BATCH = [make.change(5), make.change(6), make.change(9)]


class Failing:
    """Raises the errors it is given, one for each call, then succeeds."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls: list[tuple[str, float]] = []

    async def open(self, _context: Context) -> None:
        self._next("open")

    async def process(self, _context: Context, _changes: Sequence[Change]) -> None:
        self._next("process")

    async def close(self, _context: Context, _reason: CloseReason) -> None:
        self._next("close")

    def _next(self, call: str) -> None:
        self.calls.append((call, asyncio.get_running_loop().time()))
        if self.errors:
            raise self.errors.pop(0)


@pytest.fixture(autouse=True)
def steady_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY", 1.0)
    monkeypatch.setattr(retry, "JITTER", 0.0)


def steady(attempts: int | None = None) -> RetrySettings:
    return RetrySettings(max_delay=10, attempts=attempts)


async def test_it_tries_again_later_and_later_up_to_the_longest_delay() -> None:
    inner = Failing(*[OSError()] * 5)
    await Retrying(inner, steady(), random=Random(1)).process(CONTEXT, BATCH)
    assert [at for _, at in inner.calls] == [0, 1, 3, 7, 15, 25]


async def test_when_the_attempts_are_used_up_it_says_what_failed_and_why() -> None:
    last = ValueError("no column 'n'")
    inner = Failing(OSError(), OSError(), last, OSError())
    with pytest.raises(ObserverFailed) as failed:
        await Retrying(inner, steady(attempts=3), random=Random(1)).process(CONTEXT, BATCH)
    assert str(failed.value) == (
        "the observer failed on sequences 5..9 of range 'r1', 3 attempts: "
        "ValueError: no column 'n'"
    )
    assert failed.value.__cause__ is last
    assert len(inner.calls) == 3


@pytest.mark.parametrize("attempts", [None, 10, 4])
async def test_after_three_attempts_without_memory_there_is_no_other(
    attempts: int | None,
) -> None:
    inner = Failing(*[MemoryError()] * 9)
    with pytest.raises(ObserverFailed, match=r"3 attempts: MemoryError"):
        await Retrying(inner, steady(attempts), random=Random(1)).process(CONTEXT, BATCH)
    assert len(inner.calls) == 3


@pytest.mark.parametrize("attempts", [None, 10])
async def test_memory_that_was_missing_and_is_there_again_ends_nothing(
    attempts: int | None,
) -> None:
    inner = Failing(MemoryError(), MemoryError(), OSError(), OSError())
    await Retrying(inner, steady(attempts), random=Random(1)).process(CONTEXT, BATCH)
    assert len(inner.calls) == 5


async def test_an_open_that_failed_is_opened_again() -> None:
    inner = Failing(OSError())
    await Retrying(inner, steady(), random=Random(1)).open(CONTEXT)
    assert inner.calls == [("open", 0), ("open", 1)]


async def test_close_is_called_once_and_its_error_comes_out_as_it_is() -> None:
    inner = Failing(OSError("x"))
    with pytest.raises(OSError, match="x"):
        await Retrying(inner, steady(), random=Random(1)).close(CONTEXT, CloseReason.STOPPING)
    assert inner.calls == [("close", 0)]


async def test_what_was_decided_within_is_not_tried_again() -> None:
    inner = Failing(ObserverRefused("no"))
    with pytest.raises(ObserverRefused):
        await Retrying(inner, steady(), random=Random(1)).process(CONTEXT, BATCH)
    assert len(inner.calls) == 1


async def test_cancellation_ends_a_delay_at_once() -> None:
    inner = Failing(*[OSError()] * 9)
    retrying = Retrying(inner, steady(), random=Random(1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await retrying.process(CONTEXT, BATCH)
    assert asyncio.get_running_loop().time() == 2
    assert len(inner.calls) == 2


@pytest.mark.parametrize("before", [0, 1], ids=["first attempt", "second attempt"])
async def test_cancellation_of_the_observer_itself_is_not_an_error_to_retry(
    before: int,
) -> None:
    inner = Failing(*[OSError()] * before, asyncio.CancelledError())
    with pytest.raises(asyncio.CancelledError):
        await Retrying(inner, steady(), random=Random(1)).process(CONTEXT, BATCH)
    assert len(inner.calls) == before + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_delay": 0},
        {"attempts": 0},
    ],
)
def test_settings_that_make_no_sense_are_not_taken(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetrySettings(**wrong)  # type: ignore[arg-type]  # attempts is an int here
