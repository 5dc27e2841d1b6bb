import asyncio

import pytest

from changefeed.testing.virtual_time import Deadlock, run_in_virtual_time


@pytest.mark.real_time
async def test_a_test_of_real_things_runs_on_an_ordinary_loop() -> None:
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"


def test_what_waits_for_ever_by_timers_ends_as_a_deadlock() -> None:
    async def wait() -> None:
        for _ in range(365):
            await asyncio.sleep(24 * 3600)

    with pytest.raises(Deadlock, match="194 days"):
        run_in_virtual_time(wait())
