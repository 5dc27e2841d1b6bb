"""The clock that runs on while the machine is suspended."""

import asyncio
import time

import pytest

from changefeed.runtime.clock import elapsed_time


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has it")
def test_on_a_real_loop_suspended_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read() -> float:
        return elapsed_time()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        assert runner.run(read()) == pytest.approx(
            time.clock_gettime(time.CLOCK_BOOTTIME), abs=1
        )
        real = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + 3600)
        assert runner.run(read()) >= real(time.CLOCK_BOOTTIME) + 3599
