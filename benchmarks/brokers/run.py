"""All benchmarks of brokers, one after the other."""

import asyncio
from collections.abc import Sequence

from benchmarks.result import Result

from . import answers, catalogs, costs, eras, rates, requests

_RECORDS = 300_000


def measure() -> Sequence[Result]:
    found = [*asyncio.run(_measure()), *requests.measured(), *catalogs.measured()]
    return [*found, *(x for y in costs.read_counted() for x in _dollars(y))]


async def _measure() -> Sequence[Result]:
    found = [*await rates.measured(_RECORDS), *await answers.measured()]
    return [*found, *await eras.measured()]


def _dollars(counted: costs.Counted) -> Sequence[Result]:
    return [
        Result(
            name=f"brokers.requests.{counted.mb:g} MB/s on {prices.name}",
            value=counted.second.dollars(prices),
            unit="USD/h",
        )
        for prices in costs.PRICES
    ]
