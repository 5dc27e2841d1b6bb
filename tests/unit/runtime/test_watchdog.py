"""A process whose event loop stands still ends itself; one that wakes up does not."""

import asyncio
import os
import signal
import time

import pytest

from changefeed.runtime.exit_codes import STOOD_STILL
from changefeed.runtime.watchdog import Watchdog
from tests.support.processes import python

pytestmark = pytest.mark.real_time

SECONDS = 0.5


class Ended(BaseException):
    """In the place of the end of the process."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    return codes


async def watched(seconds: float) -> None:
    watchdog = Watchdog(SECONDS, lambda: {"r0": "17"})
    with watchdog.installed():
        watching = asyncio.create_task(watchdog.run())
        await asyncio.sleep(0)
        time.sleep(seconds)  # noqa: ASYNC251 - what is not to be done
        await asyncio.sleep(0)
        watching.cancel()


async def test_a_loop_that_stands_still_is_ended_with_all_that_is_to_be_known(
    ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Ended):
        await watched(20 * SECONDS)
    assert ends == [STOOD_STILL]
    assert "time.sleep" in caplog.text
    assert "17" in caplog.text


async def test_a_loop_that_is_slow_is_not_ended(ends: list[int]) -> None:
    await watched(SECONDS / 2)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert ends == []


async def test_a_process_that_was_frozen_has_a_moment_to_turn(ends: list[int]) -> None:
    watchdog = Watchdog(20.0, dict)
    with watchdog.installed():
        watching = asyncio.create_task(watchdog.run())
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGALRM)  # as it is heard at once after SIGCONT
        await asyncio.sleep(1.1)
        signal.raise_signal(signal.SIGALRM)
        watching.cancel()
    assert ends == []


_COLLECTS_GARBAGE_AT_EVERY_MOMENT = """
import gc, threading, time
from changefeed.runtime.watchdog import _stacks

class Garbage:
    def __init__(self):
        self.cycle, self.of_thread = self, threading.local()
        self.of_thread.x = 1

for allocations in range(1, 200):
    gc.disable()
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(5)]
    for thread in threads:
        thread.start()
    gc.collect()
    Garbage()
    gc.set_threshold(allocations)
    gc.enable()
    _stacks(None)
    end.set()
    for thread in threads:
        thread.join()
print("told")
"""


def test_the_stacks_are_told_whenever_garbage_is_collected() -> None:
    assert python(_COLLECTS_GARBAGE_AT_EVERY_MOMENT).stdout == "told\n"
