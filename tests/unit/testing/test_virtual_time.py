import asyncio

import pytest


@pytest.mark.real_time
async def test_a_test_of_real_things_runs_on_an_ordinary_loop() -> None:
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"
