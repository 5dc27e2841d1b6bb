import asyncio
import time
from collections.abc import Sequence

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.observer import CloseReason
from tests.support import make


async def test_an_hour_passes_in_no_time() -> None:
    began = time.monotonic()
    await asyncio.sleep(3600)
    assert asyncio.get_running_loop().time() == 3600
    assert time.monotonic() - began < 60


async def test_an_observer_s_call_in_a_thread_takes_no_virtual_time() -> None:
    seen: list[int] = []

    def slow(changes: Sequence[Change]) -> None:
        time.sleep(0.05)
        seen.extend(x.sequence for x in changes)

    observer, context = adapt(slow)(), make.context()
    await observer.open(context)
    async with asyncio.timeout(1):
        await observer.process(context, [make.change(1)])
    await observer.close(context, CloseReason.STOPPING)
    assert (seen, asyncio.get_running_loop().time()) == ([1], 0)


@pytest.mark.real_time
async def test_a_test_of_real_things_runs_on_an_ordinary_loop() -> None:
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"
