import asyncio
import time

import pytest


async def test_an_hour_passes_in_no_time() -> None:
    began = time.monotonic()
    await asyncio.sleep(3600)
    assert asyncio.get_running_loop().time() == 3600
    assert time.monotonic() - began < 60


@pytest.mark.real_time
async def test_a_test_of_real_things_runs_on_an_ordinary_loop() -> None:
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"
