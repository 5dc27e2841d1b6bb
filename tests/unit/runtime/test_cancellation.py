"""Calls are cancelled when they are asked to be, whatever their client does, and only then."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from changefeed.runtime.calls import in_time, keep_cancellation
from changefeed.runtime.errors import Failure, StoreUnavailable
from tests.support.looking import now


async def swallows() -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)
    return "answer"


async def fails() -> str:
    await swallows()
    raise ConnectionError("lost")


async def gives_up() -> Any:
    """Share an answer that is not waited for any more."""
    shared = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(1, shared.cancel)
    return await shared


@pytest.mark.parametrize("call", [swallows, fails, gives_up])
async def test_a_cancellation_is_raised_whatever_the_call_makes_of_it(
    call: Callable[[], Awaitable[str]],
) -> None:
    task = asyncio.create_task(keep_cancellation(call()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def timed(call: Awaitable[str]) -> str:
    return await in_time(call, 3, who="it", name="x", unavailable=StoreUnavailable)


async def test_what_waits_for_nothing_has_no_timer_and_is_given_up_by_itself_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(error: BaseException | None) -> str:
        if error is not None:
            raise error
        return "answer"

    with monkeypatch.context() as patched:
        patched.delattr(asyncio, "timeout")
        assert await timed(at_once(None)) == "answer"
        with pytest.raises(ConnectionError):
            await timed(at_once(ConnectionError("lost")))
        with pytest.raises(StoreUnavailable, match="gave x up by itself"):
            await timed(at_once(asyncio.CancelledError()))
        with pytest.raises(StoreUnavailable, match="did not answer x"):
            await timed(at_once(TimeoutError()))


async def test_what_waits_is_told_of_its_end_each_time_and_answers_as_it_would() -> None:
    told = list[float]()

    async def stubborn(waits: int) -> str:
        for _ in range(waits):
            await swallows()
            told.append(now())
        return "answer"

    asked = asyncio.create_task(timed(stubborn(2)))
    await asyncio.sleep(1)
    began = now()
    asked.cancel()
    await asyncio.sleep(1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert told == [began, began + 1]
    with pytest.raises(StoreUnavailable, match="did not answer x within 3 s"):
        await timed(stubborn(1))
    assert await timed(asyncio.sleep(2, "answer")) == "answer"


async def test_a_cancellation_that_nobody_asked_for_is_a_failure_of_the_call() -> None:
    with pytest.raises(Failure, match="was cancelled by what it called"):
        await keep_cancellation(gives_up())
    with pytest.raises(StoreUnavailable, match="gave x up by itself"):
        await timed(gives_up())
