"""The wrappers in their order, by what comes out of all of them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from changefeed.feeds.feed import Change, FeedRange, RangeId
from changefeed.host.settings import ObserverSettings
from changefeed.observers.adapters import adapt
from changefeed.observers.errors import LeaseFenced, ObserverFailed, ObserverStuck
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.middleware import retry
from changefeed.observers.middleware.retry import RetrySettings
from changefeed.observers.middleware.stack import wrap
from changefeed.observers.observer import Observer
from changefeed.runtime.logs import get_logger
from tests.support import make
from tests.support.observers import Gate

RETRY = RetrySettings(max_delay=1, attempts=2)


@pytest.fixture(autouse=True)
def steady_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_DELAY", 1.0)
    monkeypatch.setattr(retry, "JITTER", 0.0)


CONTEXT = make.context()
BATCH = [make.change(1, key="a"), make.change(2, key="b")]


async def opened(observe: Any, gate: Gate | None = None, **settings: Any) -> Observer:
    build = wrap(
        adapt(observe, {}),
        ObserverSettings(retry=RETRY, **settings),
        FailureLog(get_logger()),
        Random(1),
    )
    observer = build(FeedRange(id=RangeId("r1")), gate or Gate())
    await observer.open(CONTEXT)
    return observer


STACKS = [{}, {"timeout": 10.0}, {"concurrency": 2}, {"timeout": 10.0, "concurrency": 2}]


def cancelled_by_itself() -> BaseException:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return asyncio.CancelledError()


@pytest.mark.parametrize("settings", STACKS)
@pytest.mark.parametrize(
    "raising",
    [
        ValueError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        asyncio.CancelledError,
        cancelled_by_itself,
        lambda: ObserverStuck(RangeId("r1"), "process", 15.0),
        lambda: LeaseFenced("not theirs to say"),
    ],
)
async def test_whatever_the_observer_raises_it_is_tried_again_and_has_failed_then(
    raising: Callable[[], BaseException], settings: dict[str, Any]
) -> None:
    calls: list[str] = []

    async def observe(changes: Sequence[Change]) -> None:
        calls.append(changes[0].key)
        raise raising()

    observer = await opened(observe, **settings)
    with pytest.raises(ObserverFailed, match="2 attempts: "):
        await observer.process(CONTEXT, BATCH)
    assert calls.count("a") == 2


@pytest.mark.parametrize("settings", STACKS)
async def test_the_fence_ends_the_attempts(settings: dict[str, Any]) -> None:
    calls: list[str] = []

    async def observe(changes: Sequence[Change]) -> None:
        calls.append(changes[0].key)
        raise ValueError("no")

    partitions = settings.get("concurrency", 1)
    observer = await opened(observe, Gate(2 * partitions), **settings)
    with pytest.raises(LeaseFenced, match="the lease is not ours"):
        await observer.process(CONTEXT, BATCH)
    assert calls.count("a") == 1


async def test_what_swallows_the_end_of_its_time_has_failed() -> None:
    async def observe(_changes: Sequence[Change]) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

    observer = await opened(observe, timeout=10.0)
    with pytest.raises(ObserverFailed, match="2 attempts: TimeoutError: 'process' did not"):
        await observer.process(CONTEXT, BATCH)
    assert asyncio.get_running_loop().time() == 21


async def test_what_does_not_end_at_the_end_of_its_time_is_stuck() -> None:
    async def observe(_changes: Sequence[Change]) -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    observer = await opened(observe, timeout=10.0)
    with pytest.raises(ObserverStuck):
        await observer.process(CONTEXT, BATCH)
    assert asyncio.get_running_loop().time() == 15
