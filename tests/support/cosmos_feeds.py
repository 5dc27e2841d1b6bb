"""A Cosmos DB container in an emulator in this process, its feed, and who changes both."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple
from unittest.mock import Mock

import aiohttp
import msgspec
from azure.core.pipeline.transport import AioHttpTransport
from msgspec.structs import replace

from changefeed.feeds.cosmos.address import CosmosAccess, CosmosAddress, Mode
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.feeds.feed import Change, Feed, FeedRange, Page, Position, RangeId
from changefeed.log.records import Record
from changefeed.testing.feed_harness import FeedAbility
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand
from tests.support.four_methods import FourMethods
from tests.support.processes import PATIENCE

THROUGHPUT_OF_A_RANGE = 6_000
SESSION = "x-ms-session-token"
_UPSERT = {"x-ms-documentdb-is-upsert": "True"}
_OF_ONE_REQUEST = {"x-ms-activity-id", "x-ms-date", "authorization", "x-ms-client-id"}
_OF_ONE_CHANGE = {"if-match", "content-length"} | _OF_ONE_REQUEST


@dataclass(frozen=True)
class CosmosWorld:
    """An emulator with a container ``d/c`` by ``/pk``."""

    url: str
    by_hand: Hand

    @property
    def address(self) -> CosmosAddress:
        return CosmosAddress(endpoint=self.url, database="d", container="c")

    def feed(self, mode: Mode = "latest-version") -> Any:
        """Open a feed of the container, one that remembers nothing yet."""
        return open_cosmos(
            dataclasses.replace(self.address, options={"mode": mode}), CosmosAccess()
        )

    async def create(self, *, ranges: int = 1) -> None:
        body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
        throughput = {"x-ms-offer-throughput": str(ranges * THROUGHPUT_OF_A_RANGE)}
        assert (await self.by_hand.send("POST", "/dbs/d/colls", body, throughput)).status == 201

    async def delete(self) -> None:
        assert (await self.by_hand.send("DELETE", "/dbs/d/colls/c")).status == 204

    async def put(self, item_id: str, key: Any = "p", **more: Any) -> None:
        header = {"x-ms-documentdb-partitionkey": json.dumps([key])} | _UPSERT
        body = {"id": item_id, "pk": key, **more}
        got = await self.by_hand.send("POST", DOCS, body, header)
        assert got.status in {200, 201}, got.body

    async def write(self, keys: Iterable[str], step: int) -> None:
        """Put a new item of every key; items stay, so that no version is replaced."""
        for key in keys:
            await self.put(f"{key}-{step}", key, step=step)

    async def remove(self, item_id: str, key: str = "p") -> None:
        assert (await self.by_hand.send("DELETE", f"{DOCS}/{item_id}", key=key)).status == 204

    async def living(self) -> list[str]:
        """Return the ids of the physical ranges, by their bounds."""
        (container,) = await self.by_hand.control("GET", "")
        found = sorted((x["low"], x["id"]) for x in container["ranges"] if not x["gone"])
        return [name for _, name in found]

    async def shake(self, random: Random) -> None:
        """Split a range, or merge two."""
        living = await self.living()
        if len(living) > 1 and random.random() < 0.5:
            at = random.randrange(len(living) - 1)
            await self.by_hand.merge(*living[at : at + 2])
        else:
            await self.by_hand.split(range=random.choice(living))

    async def fault(self, **fault: Any) -> None:
        await self.by_hand.control("POST", "faults", **fault)

    async def no_faults(self) -> None:
        await self.by_hand.control("DELETE", "faults")

    async def counted(self) -> dict[str, dict[str, int]]:
        """Return how often each operation was answered with each status since last asked."""
        counts: dict[str, dict[str, int]] = await self.by_hand.control("GET", "requests")
        await self.by_hand.control("DELETE", "requests")
        return counts


@asynccontextmanager
async def cosmos_world(*, ranges: int = 1) -> AsyncIterator[CosmosWorld]:
    async with running() as url, aiohttp.ClientSession() as session:
        made = CosmosWorld(url, Hand(url, session))
        await made.by_hand.send("POST", "/dbs", {"id": "d"})
        await made.create(ranges=ranges)
        yield made


class Unwrapped(FourMethods):
    """A Cosmos DB feed whose items each hold one record: their ids and bodies are its."""

    children_inherit_positions = True

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        page = await super().read(found, after, limit)
        return Page(changes=[_unwrapped(x) for x in page.changes], position=page.position)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        return await self._feed.lags(at)

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        return self._feed.split(found, into)

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        return self._feed.merge(parts)

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        return self._feed.sub_range(found, low, high)


class _Wrapped(msgspec.Struct):
    record: str
    body: msgspec.Raw


def _unwrapped(change: Change) -> Change:
    item = msgspec.json.decode(change.body, type=_Wrapped)
    return replace(change, id=item.record, body=bytes(item.body))


class InCosmos:
    """The harness of the contract suite: each record is an item of its own."""

    can: frozenset[FeedAbility] = frozenset()

    def __init__(self, world: CosmosWorld, feed: CosmosFeed) -> None:
        self.feed: Feed = Unwrapped(feed)
        self._world = world
        self._count = 0

    async def append(self, records: Sequence[Record]) -> None:
        for x in records:
            self._count += 1
            name = x.key if x.id is None else x.id
            body = msgspec.Raw(x.body or b"null")
            await self._world.put(f"n{self._count}", x.key, record=name, body=body)

    async def split(self, range_id: RangeId) -> None:
        await self._world.by_hand.split(range=range_id)

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        await self._world.by_hand.merge(*range_ids)


@asynccontextmanager
async def in_cosmos(ranges: int) -> AsyncIterator[InCosmos]:
    async with cosmos_world(ranges=ranges) as world, world.feed() as feed:
        yield InCosmos(world, feed)


class Sent(NamedTuple):
    """A request that was answered."""

    headers: Mapping[str, str]
    body: Any
    how: Mapping[str, Any]
    session: str

    @property
    def lasting(self) -> Any:
        """What the next request of the kind has too."""
        of_one = _OF_ONE_REQUEST if self.body is None else _OF_ONE_CHANGE
        headers = {x: y for x, y in self.headers.items() if x not in of_one}
        return headers, self.body, {**self.how, "read_timeout": None}  # shorter if sent again


class Seeing(AioHttpTransport):  # type: ignore[misc] # it has no types
    """Keeps requests by method. ``by_client`` is called for those that the client made."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, list[Sent]] = {"GET": [], "PATCH": []}
        self.by_client = Mock()

    async def send(self, request: Any, **config: Any) -> Any:
        body = json.loads(request.data) if request.method == "PATCH" else None
        headers = {x.lower(): y for x, y in request.headers.items()}
        answer = await super().send(request, **config)
        if "/docs/" in request.url and request.method in self.sent:
            session = answer.headers.get(SESSION, "")
            self.sent[request.method].append(Sent(headers, body, config, session))
        return answer


class Seen:
    """The steps of items that observers were given, by key, in order."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.steps: dict[str, list[int]] = {x: [] for x in keys}
        self._more = asyncio.Condition()

    async def see(self, changes: Sequence[Change]) -> None:
        for x in changes:
            self.steps[x.key].append(x.value()["step"])
        async with self._more:
            self._more.notify_all()

    async def reach(self, step: int) -> None:
        """Wait until every key has got so far."""
        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(
                lambda: all(x and x[-1] >= step for x in self.steps.values())
            )
