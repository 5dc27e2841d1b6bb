"""What asks a process to stop is passed on, and what it ignored before stays ignored."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from changefeed.cli import raise_interrupts
from changefeed.runtime.shutdown import StopSignals
from changefeed.runtime.signals import each_apart, on_stop_signals
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.real_time

ALL = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.fixture(autouse=True)
def _signals_that_are_missed_end_no_test_run() -> Iterator[None]:
    before = {x: signal.signal(x, lambda *_: None) for x in ALL}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ALL)
async def test_each_signal_is_passed_on_until_the_block_is_left(number: signal.Signals) -> None:
    heard = asyncio.Event()
    with on_stop_signals(heard.set):
        os.kill(os.getpid(), number)
        async with asyncio.timeout(PATIENCE):
            await heard.wait()
    assert [signal.getsignal(x) for x in ALL] == [
        signal.SIG_DFL,
        signal.default_int_handler,
        signal.SIG_DFL,
    ]


async def test_a_hang_up_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    raise_interrupts()
    heard = asyncio.Event()
    with on_stop_signals(heard.set):
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.1)
    assert (heard.is_set(), signal.getsignal(signal.SIGHUP)) == (False, signal.SIG_IGN)


def test_signals_that_come_together_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((5.0, 5.00001, 5.05, 6.0))
    monkeypatch.setattr("changefeed.runtime.signals.monotonic", lambda: next(times))
    stops = Counter[str]()
    hear = each_apart(lambda: stops.update(["all"]))
    told = [hear(signal.SIGTERM, None) or stops["all"] for _ in range(4)]
    assert told == [1, 1, 1, 2]


async def test_a_signal_cancels_what_starts_and_only_wakes_what_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("changefeed.runtime.shutdown.exit_after", lambda *_: None)

    async def start(*, waits: bool) -> str:
        signals = StopSignals(budget=0.0)
        with signals.installed():
            asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGHUP)
            await (signals.wait() if waits else asyncio.sleep(10))
        return "ended"

    assert await asyncio.create_task(start(waits=True)) == "ended"
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(start(waits=False))
