"""Changes a second from Cosmos DB through one host, with an observer that does nothing.

Against a bare loop with the vendor's client: a task for each range that reads page after
page with ``query_items_change_feed``. Both read from an emulator in a process of its own,
with one range and with eight, in pages of up to 1000. A page is one request, so what they
read is bounded by what the emulator serves: that is measured as well, by requests that
are signed and sent by hand, whose answers nobody reads.

Leases are in another container of the same emulator. At the end a host reads slowly, in
small pages and with frequent renewals, while nobody else touches its leases: how many of
its writes lost against another one (412) is what the emulator counted.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import EMULATOR_KEY, CosmosAccess, CosmosAddress
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.host.settings import FeedSettings
from changefeed.leases.addresses import open_container
from emulator.tests.by_hand import signed

from .endpoint import DATABASE, client_of, counted, endpoint, make_container
from .one_host import Parts, Until, seconds_of_host
from .result import Result, at_least, exactly

_ITEMS = 32_000
_ROUNDS = 3  # after one to warm up
_PAGE = FeedSettings().page_size
_NOT_MODIFIED = 304
_CONFLICT = "412"
_LEASE_WRITES = ("patch_item", "replace_item", "upsert_item", "create_item")

Seconds = Mapping[str, float]
_PAUSE = 0.001  # with each change: four seconds and more in all
_SLOWLY: Parts = {
    "feed": {"page_size": 50},
    "leases": {"expiration": 10.0},
    "timing": {"renew_interval": 0.2, "balance_interval": 0.5},
}
_fresh = count()


def measure() -> Sequence[Result]:
    return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    async with endpoint() as url:
        await make_container(url, "one", ranges=1, items=_ITEMS)
        await make_container(url, "eight", ranges=8, items=_ITEMS)
        await counted(url)
        one = await _rounds(url, "one")
        eight = await _rounds(url, "eight")
        await counted(url)
        await _host(url, "eight", _SLOWLY, Until(_ITEMS, pause=_PAUSE))
        counts = await counted(url)
    return [
        *_rates("cosmos.1", one),
        *_rates("cosmos.8", eight),
        Result(
            name="cosmos.8_ranges_against_1",
            value=median(x["host"] for x in one) / median(x["host"] for x in eight),
            unit="times as fast",
            against="cosmos.1.host",
            ratio=median(x["host"] for x in one) / median(x["host"] for x in eight),
        ),
        *_conflicts(counts),
    ]


async def _rounds(url: str, name: str) -> Sequence[Seconds]:
    return [await _round(url, name) for _ in range(_ROUNDS + 1)][1:]


async def _round(url: str, name: str) -> Seconds:
    return {
        "endpoint": await _by_hand(url, name),
        "loop": await _loop(url, name),
        "host": await _host(url, name, {}, Until(_ITEMS)),
    }


async def _host(url: str, name: str, parts: Parts, until: Until) -> float:
    """Read with a host whose leases are new ones."""
    address = CosmosAddress(endpoint=url, database=DATABASE, container=name)
    leases = f"cosmos+{url}{DATABASE}/leases?prefix=fleet-{next(_fresh)}"
    async with (
        open_cosmos(address, CosmosAccess()) as feed,
        open_container(leases, OpenOptions(create=True)) as container,
    ):
        return await seconds_of_host(feed, container, parts, until)


async def _loop(url: str, name: str) -> float:
    """Read with the vendor's client until there is nothing more."""
    async with client_of(url) as client:
        container = client.get_database_client(DATABASE).get_container_client(name)
        ranges = [x async for x in container.read_feed_ranges()]

        async def read(feed_range: dict[str, Any]) -> int:
            pages = container.query_items_change_feed(
                feed_range=feed_range, start_time="Beginning", max_item_count=_PAGE
            ).by_page()
            return sum([len([x async for x in page]) async for page in pages])

        began = perf_counter()
        found = await asyncio.gather(*map(read, ranges))
        seconds = perf_counter() - began
    assert sum(found) == _ITEMS, f"the loop found {sum(found)} items"
    return seconds


async def _by_hand(url: str, name: str) -> float:
    """Ask for every page, and throw it away."""
    documents = f"/dbs/{DATABASE}/colls/{name}/docs"
    key_ranges = f"/dbs/{DATABASE}/colls/{name}/pkranges"
    async with aiohttp.ClientSession(base_url=url) as session:
        async with session.get(key_ranges, headers=_signed(key_ranges)) as got:
            ranges = [x["id"] for x in (await got.json())["PartitionKeyRanges"]]

        async def read(range_id: str) -> None:
            headers = {
                "A-IM": "Incremental Feed",
                "x-ms-documentdb-partitionkeyrangeid": range_id,
                "x-ms-max-item-count": str(_PAGE),
            }
            while True:
                asked = _signed(documents) | headers
                async with session.get(documents, headers=asked) as got:
                    await got.read()
                if got.status == _NOT_MODIFIED:
                    return
                headers["If-None-Match"] = got.headers["etag"]

        began = perf_counter()
        await asyncio.gather(*map(read, ranges))
        return perf_counter() - began


def _signed(path: str) -> dict[str, str]:
    return signed("GET", path, EMULATOR_KEY)


def _rates(name: str, rounds: Sequence[Seconds]) -> Sequence[Result]:
    loop = median(x["endpoint"] / x["loop"] for x in rounds)
    host = median(x["loop"] / x["host"] for x in rounds)
    return [
        Result(name=f"{name}.endpoint", value=_rate(rounds, "endpoint"), unit="changes/s"),
        Result(
            name=f"{name}.loop",
            value=_rate(rounds, "loop"),
            unit="changes/s",
            against=f"{name}.endpoint",
            ratio=loop,
        ),
        Result(
            name=f"{name}.host",
            value=_rate(rounds, "host"),
            unit="changes/s",
            against=f"{name}.loop",
            ratio=host,
            goal=at_least(host, 0.9),
        ),
    ]


def _rate(rounds: Sequence[Seconds], what: str) -> float:
    return _ITEMS / median(x[what] for x in rounds)


def _conflicts(counts: Mapping[str, Mapping[str, int]]) -> Sequence[Result]:
    writes = [x for name, x in counts.items() if name in _LEASE_WRITES]
    total = sum(sum(x.values()) for x in writes)
    lost = sum(x.get(_CONFLICT, 0) for x in writes)
    return [
        Result(
            name="cosmos.conflicts",
            value=lost,
            unit="lost writes",
            against=f"all writes of leases: {total}",
            ratio=lost / total,
            goal=exactly(lost, 0),
        )
    ]
