"""What tasks beside the main one raise ends neither it nor the loop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from changefeed.runtime.main_task import run_main_task

pytestmark = pytest.mark.real_time


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@contextmanager
def ctrl_c_is_a_signal_to_stop() -> Iterator[None]:
    """As it is in a host."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def exits() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def interrupts() -> None:
    await asyncio.sleep(0)
    raise KeyboardInterrupt


@pytest.mark.parametrize("child", [exits, interrupts])
def test_a_task_group_raises_what_its_task_did_and_the_loop_goes_on(
    runner: asyncio.Runner, child: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> int:
        caught = 0
        for _ in range(3):
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(child())
            except (SystemExit, KeyboardInterrupt):
                caught += 1
            await asyncio.sleep(0.001)
        return caught

    with ctrl_c_is_a_signal_to_stop():
        assert run_main_task(runner, main()) == 3


def test_a_task_that_no_one_awaits_ends_alone_and_is_in_the_log(
    runner: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> str:
        task = asyncio.create_task(exits())
        await asyncio.sleep(0.001)
        return repr(task.exception())

    assert run_main_task(runner, main()) == "SystemExit(3)"
    (line,) = [x for x in caplog.records if "an exit was ignored" in x.getMessage()]
    assert "SystemExit(3)" in line.getMessage()


def test_an_end_in_the_same_turn_of_the_loop_is_not_missed(runner: asyncio.Runner) -> None:
    async def main() -> str:
        asyncio.get_running_loop().call_soon(sys.exit, 3)
        return "ended"

    assert run_main_task(runner, main()) == "ended"


_WAITS_FOR_CTRL_C = """
import asyncio, signal, sys
from changefeed.runtime.main_task import run_main_task

async def exits():
    sys.exit(3)

async def main():
    if sys.argv[1] == "stray":
        task = asyncio.create_task(exits())
    await asyncio.sleep(0.05)
    print("waits", flush=True)
    try:
        while True:  # a signal just before the loop waits is seen after it has waited
            await asyncio.sleep(0.1)
    finally:
        await asyncio.sleep(0.05)
        print("cleaned up", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with asyncio.Runner() as runner:
        run_main_task(runner, main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("case", ["alone", "stray"])
def test_ctrl_c_cancels_the_main_task_and_is_raised(case: str) -> None:
    command = [sys.executable, "-c", _WAITS_FOR_CTRL_C, case]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert said.splitlines() == ["cleaned up", "interrupted"]
    assert process.returncode == 0
