"""Observers that cancel tasks which are not theirs: a host that ends so has not succeeded."""

from pathlib import Path

import pytest

from tests.support.commands import PLACES, QUICK, a_log_of, owners, running

pytestmark = pytest.mark.real_time

OBSERVERS = """
import asyncio

async def all_tasks(context, changes):
    await asyncio.sleep(0.3)  # the other ranges have begun
    for task in asyncio.all_tasks():
        task.cancel()

async def all_others(context, changes):
    await asyncio.sleep(0.3)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.1)

async def companions(context, changes):
    await asyncio.sleep(0.3)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if "_stop_on_failure" in repr(task):
            task.cancel()
"""


@pytest.mark.parametrize("observer", ["all_tasks", "all_others", "companions"])
async def test_the_host_ends_with_1_names_the_observer_and_leaves_no_lease(
    tmp_path: Path, observer: str
) -> None:
    a_log_of(40, tmp_path)
    (tmp_path / "cancelling.py").write_text(OBSERVERS)
    name = f"--observer=cancelling:{observer}"
    async with running("run", *PLACES, *QUICK, name, cwd=tmp_path) as host:
        assert await host.ends() == 1
    assert f"cancelling:{observer}" in host.said.splitlines()[-1]
    assert "Traceback" not in host.said
    assert owners(tmp_path) == [None] * 4
