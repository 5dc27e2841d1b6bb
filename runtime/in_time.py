"""Calls that are answered in time, or fail by saying that they were not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from changefeed.runtime.cancellation import CancelledByClient, keep_cancellation

T = TypeVar("T")


async def in_time(
    call: Awaitable[T],
    seconds: float,
    *,
    who: str,
    name: str,
    unavailable: Callable[[str], Exception],
) -> T:
    """Await a call to ``who``; raise ``unavailable(text)`` after so many seconds, or if its
    client gave it up. A write may have happened, or may happen yet.
    """
    assert seconds > 0, f"{name} has no time to be answered"
    try:
        async with asyncio.timeout(seconds):
            return await keep_cancellation(call)
    except TimeoutError as error:
        raise unavailable(f"{who} did not answer {name} within {seconds:g} s") from error
    except CancelledByClient as error:
        raise unavailable(f"the client of {who} gave {name} up by itself") from error
