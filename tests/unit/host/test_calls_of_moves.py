"""What a lease that changes hands costs in calls, as the page on stores says."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from changefeed.leases.container import LeaseContainer
from changefeed.leases.memory import MemoryCheckpoints, MemoryLeases, MemoryOwnership
from changefeed.leases.separate_stores import SeparateStores
from changefeed.testing import Fleet
from changefeed.testing.proxies import proxied

T = TypeVar("T")
PAGE = Path(__file__).parents[3] / "docs/stores.md"
WRITES = ("acquire", "replace", "write")
ALONE = {  # nothing but moves reads or writes a lease
    "leases": {"renew_interval": 3000, "expiration": 9000},
    "feed": {"lag_interval": 3600},
}


def counting(store: T, calls: Counter[str]) -> T:
    async def counted(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        calls[name] += 1
        return await call()

    return proxied(store, counted)


def together(calls: Counter[str]) -> LeaseContainer:
    return counting(MemoryLeases(), calls)


def apart(calls: Counter[str]) -> LeaseContainer:
    return SeparateStores(
        counting(MemoryOwnership(), calls), counting(MemoryCheckpoints(), calls)
    )


def costs(calls: Counter[str], leases: int) -> str:
    writes = sum(calls[x] for x in WRITES)
    return f"{writes // leases} writes and {calls['read'] // leases} reads"


@pytest.mark.parametrize(("make", "column"), [(together, 0), (apart, 1)])
async def test_a_lease_that_moves_costs_as_many_calls_as_the_page_says(
    make: Callable[[Counter[str]], LeaseContainer], column: int
) -> None:
    rows = re.findall(r"^\| a lease that .+\| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    released, asked_for = (re.findall(r"\d writes and \d reads", row)[column] for row in rows)
    calls: Counter[str] = Counter()
    async with Fleet(container=make(calls), settings=ALONE) as fleet:
        fleet.start("anna")
        await fleet.balanced()
        await asyncio.sleep(30)
        calls.clear()
        fleet.start("ben")
        await fleet.balanced()
        await asyncio.sleep(10)
        assert costs(calls, 2) == asked_for
        calls.clear()
        await fleet.stop("ben")
        await fleet.balanced()
        assert costs(calls, 2) == released
