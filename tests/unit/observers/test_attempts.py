"""What ends the attempts of an observer, or fails one, in all its settings."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from changefeed.feeds.feed import Change
from changefeed.leases.errors import LeaseLost
from changefeed.observers.adapters import adapt
from tests.support import make
from tests.support.handing import Handing
from tests.support.observers import Gate

pytestmark = pytest.mark.usefixtures("steady_delays")

RETRY = {"max_delay": 1, "attempts": 2}
BATCH = [make.change(1, key="a"), make.change(2, key="b")]


def handing(observe: Any, gate: Gate | None = None, **settings: Any) -> Handing:
    return Handing(adapt(observe, {}), context=gate, retry=RETRY, **settings)


STACKS = [{}, {"timeout": 10.0}, {"concurrency": 2}, {"timeout": 10.0, "concurrency": 2}]


@pytest.mark.parametrize("settings", STACKS)
async def test_the_fence_ends_the_attempts(settings: dict[str, Any]) -> None:
    calls: list[str] = []

    async def observe(changes: Sequence[Change]) -> None:
        calls.append(changes[0].key)
        raise ValueError("no")

    partitions = settings.get("concurrency", 1)
    handed = handing(observe, Gate(2 * partitions), **settings)
    with pytest.raises(LeaseLost, match="the lease is not ours"):
        await handed.process(BATCH)
    assert calls.count("a") == 1


async def test_what_swallows_the_end_of_its_time_has_failed() -> None:
    async def observe(_changes: Sequence[Change]) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

    handed = handing(observe, timeout=10.0)
    await handed.process(BATCH[:1], seconds=21.5)
    assert [n for n, error in handed.told.failures if "'process' did not" in error] == [1, 2]
