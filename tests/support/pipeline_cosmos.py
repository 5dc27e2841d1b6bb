"""An emulator in a thread of this process, for planners and tasks, which block theirs."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from azure.cosmos import CosmosClient as BlockingClient
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.feed import RangeId
from changefeed.feeds.raw_pages import Rows
from changefeed.log.format.block_format import Columns
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import plan_slices
from changefeed.pipeline.source.reader import Access, Slice
from cosmos_emulator import DEVELOPMENT_KEY
from tests.support.cosmos_feeds import CosmosWorld, cosmos_world
from tests.support.processes import PATIENCE

T = TypeVar("T")

Row = tuple[int, RangeId, int, str, bytes]
"""What a row of a table says of a change: generation, range, sequence, id, body."""


@dataclass(frozen=True, kw_only=True)
class ServedCosmos:
    """The container ``d/c`` of an emulator. ``do`` what changes it, and wait for it."""

    world: CosmosWorld
    loop: asyncio.AbstractEventLoop

    def do(self, doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result(PATIENCE)

    def address(self, mode: str | None = "latest-version") -> str:
        place = f"{self.world.url.replace('http:', 'cosmos+http:')}d/c"
        return place if mode is None else f"{place}?mode={mode}"

    @contextmanager
    def access(
        self, mode: str = "latest-version", *, patience: float = PATIENCE
    ) -> Iterator[FeedAccess]:
        """Open it as a planner or a task does: with nothing remembered."""
        address = self.address(mode)
        options = OpenOptions(cosmos=CosmosAccess())
        made = FeedAccess(
            lambda: open_feed(address, options),
            position_traits(),
            patience=patience,
        )
        with closing(made):
            yield made

    def put(self, count: int, *, keys: int = 50, n: int = 0, key: str = "k") -> None:
        """Write items ``i0`` and so on, each in a transaction of its own."""

        async def write() -> None:
            few = asyncio.Semaphore(8)

            async def one(x: int) -> None:
                async with few:
                    await self.world.put(f"i{x}", f"{key}{x % keys}", n=n)

            await asyncio.gather(*map(one, range(count)))

        self.do(write())

    def put_together(self, ids: Sequence[str], key: str) -> None:
        """Write items in one transaction."""

        async def write() -> None:
            async with CosmosClient(self.world.url, DEVELOPMENT_KEY) as client:
                items = client.get_database_client("d").get_container_client("c")
                batch = [("upsert", ({"id": x, "pk": key},)) for x in ids]
                await items.execute_item_batch(batch, key)

        self.do(write())

    def remove(self, item: str, key: str) -> None:
        self.do(self.world.remove(item, key))

    def split(self, range_id: str, **how: Any) -> list[str]:
        made = self.do(self.world.by_hand.split(range=range_id, **how))
        return [x["id"] for x in made]

    def merge(self, *ranges: str) -> str:
        return str(self.do(self.world.by_hand.merge(*ranges))["id"])

    def shake(self, random: Random) -> None:
        self.do(self.world.shake(random))

    def make_anew(self, *, ranges: int = 1) -> None:
        self.do(self.world.delete())
        self.do(self.world.create(ranges=ranges))

    def living(self) -> list[str]:
        return self.do(self.world.living())

    def requests(self) -> dict[str, int]:
        """Return how often each operation was asked for since the last time."""
        counted = self.do(self.world.counted())
        return {name: sum(x.values()) for name, x in counted.items()}


@contextmanager
def served_cosmos(*, ranges: int = 1) -> Iterator[ServedCosmos]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def do(doing: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(doing, loop).result(PATIENCE)

    try:
        opening = cosmos_world(ranges=ranges)
        world = do(opening.__aenter__())
        try:
            yield ServedCosmos(world=world, loop=loop)
        finally:
            do(opening.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def written(url: str, key: PartitionKey, items: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write items to a container of its own, with ranges; return the options that read it."""
    with BlockingClient(url, DEVELOPMENT_KEY) as client:
        database = client.create_database_if_not_exists("d")
        database.create_container("k", key, offer_throughput=30_000)
    write(url, items)
    return {"feed": f"{url.replace('http:', 'cosmos+http:')}d/k"}


def write(url: str, items: Sequence[Mapping[str, Any]]) -> None:
    """Write items to the container that ``written`` has made."""
    with BlockingClient(url, DEVELOPMENT_KEY) as client:
        container = client.get_database_client("d").get_container_client("k")
        for x in items:
            container.create_item({**x})


def put(url: str, item: Mapping[str, Any], key: Sequence[Any]) -> None:
    """Write an item under a key of which it may lack levels: in a batch, which names it."""
    with BlockingClient(url, DEVELOPMENT_KEY) as client:
        container = client.get_database_client("d").get_container_client("k")
        container.execute_item_batch([("create", ({**item},))], [*key])


def rows(access: Access, slices: Sequence[Slice]) -> list[Row]:
    """Read slices; return what a table would say of their changes."""
    found: list[Row] = []
    for slice_ in slices:
        for range_id, changes in access.read(slice_):
            assert not isinstance(changes, Columns), "that is for event logs"
            read = changes if isinstance(changes, Rows) else Rows.of(changes)
            found += [
                (slice_.generation, range_id, sequence, id_, bytes(body))
                for sequence, id_, body in zip(
                    read.sequences, read.ids, read.bodies, strict=True
                )
            ]
    return found


def batch(access: Access, start: Offset, end: Offset, *, changes: int = 10**6) -> list[Row]:
    """Read what lies between two offsets, as a task does."""
    return rows(access, plan_slices(access, start, end, changes=changes))
