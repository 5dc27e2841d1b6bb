"""A region that reads shows what the one that writes showed some seconds ago, unmixed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from cosmos_emulator import EmulatorSettings, regions, serve
from cosmos_emulator.settings import RegionSettings
from emulator.tests.by_hand import DOCS, Hand, Reply, hand

WEST, EAST = "West US", "East US"
FIRST_LAG = 2.0


@dataclass
class World:
    """An account of two regions, and the seconds by which they lag."""

    account: Hand
    west: Hand
    east: Hand
    clock: list[float]

    async def put(self, name: str, at: Hand | None = None, **more: Any) -> Reply:
        body = {"id": name, "pk": name[0], **more}
        upsert = {"x-ms-documentdb-is-upsert": "true"}
        return await (at or self.account).send("POST", DOCS, body, upsert, key=name[0])

    async def read(self, at: Hand, name: str, **headers: str) -> Reply:
        sent = {k.replace("_", "-"): v for k, v in headers.items()}
        return await at.send("GET", f"{DOCS}/{name}", headers=sent, key=name[0])

    async def change(self, region: str, **what: Any) -> Any:
        return await self.account.control("POST", "regions", region=region, **what)


@asynccontextmanager
async def world(lag: float = FIRST_LAG, **more: Any) -> AsyncIterator[World]:
    clock, url = [1_000.0], asyncio.get_running_loop().create_future()
    regions = (RegionSettings(name=WEST), RegionSettings(name=EAST, lag=lag))
    account = EmulatorSettings(port=0, regions=regions, **more)
    server = asyncio.create_task(
        serve(account, ready=url.set_result, now=lambda: clock[0]),
    )
    try:
        async with hand(await url) as by_hand:
            told = (await by_hand.send("GET", "/")).body
            assert told["id"] != "localhost"  # by it, the client for Node knows one region
            there = told["readableLocations"]
            assert [x["name"] for x in there] == [WEST, EAST]
            west, east = (replace(by_hand, url=x["databaseAccountEndpoint"]) for x in there)
            yield World(by_hand, west, east, clock)
    finally:
        server.cancel()
        await asyncio.wait({server})


SHOWN = ("etag", "lsn", "x-ms-session-token", "x-ms-item-count", "x-ms-substatus")


def shown(reply: Reply) -> Any:
    body = reply.body if reply.status < 400 else None
    return reply.status, [reply.headers.get(x) for x in SHOWN], body


async def all_that_is_shown(at: Hand) -> list[Any]:
    """Return what clients can see of a container in a region: items, queries, both feeds."""
    ranges = (await at.send("GET", "/dbs/d/colls/c/pkranges")).body["PartitionKeyRanges"]
    found: list[Any] = [sorted(x["id"] for x in ranges)]
    for held in ranges:
        found += [
            shown(await at.feed(range_=held["id"])),
            shown(await at.feed('"0"', held["id"], A_IM="Full-Fidelity Feed")),
            shown(await at.query("SELECT * FROM c", range_=held["id"])),
        ]
    for name in NAMES:
        found.append(shown(await at.send("GET", f"{DOCS}/{name}", key=name[0])))
    return found


NAMES = ("a1", "a2", "b1")
STEPS = st.one_of(
    *[st.tuples(st.just("put"), st.sampled_from(NAMES))] * 2,
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("batch"), st.just("a")),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 1.5, 3.0])),
    st.tuples(st.just("lag"), st.sampled_from([0.0, 1.0, 4.0])),
    st.tuples(st.sampled_from(["split", "merge", "move", "reset"]), st.none()),
)


@dataclass
class Story:
    """Acts in a world, and keeps what the region that writes showed at each moment."""

    world: World
    writer: str = WEST
    lags: dict[str, float] = field(default_factory=lambda: {WEST: 0.0, EAST: FIRST_LAG})
    history: list[tuple[float, list[Any]]] = field(default_factory=list)
    reached: int = 0  # which of these the other one has come to

    @property
    def reader(self) -> str:
        return EAST if self.writer == WEST else WEST

    def at(self, region: str) -> Hand:
        return self.world.west if region == WEST else self.world.east

    async def act(self, what: str, value: Any) -> bool:
        """Do something; return whether it is in both regions at once."""
        world, now = self.world, self.world.clock
        match what:
            case "put":
                assert (await world.put(value)).status in {200, 201}
            case "delete":
                await world.account.send("DELETE", f"{DOCS}/{value}", key=value[0])
            case "batch":
                writes = [
                    {"operationType": "Upsert", "resourceBody": {"id": x, "pk": value}}
                    for x in ("a1", "a2")
                ]
                batch = {
                    "x-ms-cosmos-is-batch-request": "true",
                    "x-ms-cosmos-batch-atomic": "true",
                }
                done = await world.account.send("POST", DOCS, writes, batch, key=value)
                assert done.status == 200
            case "wait":
                now[0] += value
            case "lag":
                self.lags[self.reader] = value
                await world.change(self.reader, lag=value)
            case "move":
                await world.change(self.reader, writes=True)
                self.writer = self.reader
                return True
            case "reset":
                await world.account.control("POST", "reset")
                return True
            case "split" | "merge":
                return await self.change_ranges(what)
        return False

    async def change_ranges(self, how: str) -> bool:
        told = (await self.world.account.control("GET", ""))[0]["ranges"]
        there = sorted((x["low"], x["id"]) for x in told if not x["gone"])
        if how == "split":
            await self.world.account.split(range=there[0][1])
            return True
        if len(there) > 1:
            await self.world.account.merge(there[0][1], there[1][1])
        return len(there) > 1

    async def check(self, *, at_once: bool) -> None:
        now = self.world.clock[0]
        self.history.append((now, await all_that_is_shown(self.at(self.writer))))
        due = [
            i for i, (at, _) in enumerate(self.history) if at <= now - self.lags[self.reader]
        ]
        self.reached = max([self.reached, *due])
        if at_once:
            self.reached = len(self.history) - 1
        found = await all_that_is_shown(self.at(self.reader))
        assert found == self.history[self.reached][1]


@settings(max_examples=10)
@given(st.lists(STEPS, min_size=15, max_size=25))
def test_a_region_shows_what_the_one_that_writes_showed_as_long_ago_as_it_lags(
    steps: list[tuple[str, Any]],
) -> None:
    async def run() -> None:
        async with world() as w:
            await w.account.control("POST", "snapshot")
            story = Story(w)
            await story.check(at_once=True)
            for step in steps:
                await story.check(at_once=await story.act(*step))

    asyncio.run(run())


async def test_a_session_waits_for_a_region_that_is_behind_and_others_do_not() -> None:
    async with world() as w:
        written = await w.put("a1")
        session = {"x_ms_session_token": written.headers["x-ms-session-token"]}
        assert (await w.read(w.west, "a1", **session)).status == 200
        behind = await w.read(w.east, "a1", **session)
        assert (behind.status, behind.substatus) == (404, 1002)
        feed = await w.east.feed(**session)
        assert (feed.status, feed.substatus) == (404, 1002)
        for level in ("Eventual", "consistentprefix"):
            weak = await w.read(w.east, "a1", **session, x_ms_consistency_level=level)
            assert (weak.status, weak.substatus) == (404, 0)
        w.clock[0] += FIRST_LAG
        assert (await w.read(w.east, "a1", **session)).body["id"] == "a1"


@pytest.mark.parametrize(
    ("account", "asked", "status"),
    [
        ("Session", "Strong", 400),
        ("Session", "BoundedStaleness", 400),
        ("Eventual", "ConsistentPrefix", 400),
        ("Session", "Absolute", 400),
        ("Strong", None, 200),
        ("Strong", "Strong", 200),
        ("Strong", "Eventual", 404),  # it did not ask for what was written just now
        ("BoundedStaleness", "Session", 404),
        ("BoundedStaleness", None, 404),
    ],
)
async def test_a_request_is_as_consistent_as_it_asks_and_no_more_than_the_account(
    account: str, asked: str | None, status: int
) -> None:
    async with world(consistency=account) as w:
        shown_by = (await w.account.send("GET", "/")).body["userConsistencyPolicy"]
        assert shown_by["defaultConsistencyLevel"] == account
        await w.put("a1")
        level = {} if asked is None else {"x_ms_consistency_level": asked}
        assert (await w.read(w.east, "a1", **level)).status == status


async def test_a_region_that_reads_refuses_writes_until_it_is_the_one_that_writes() -> None:
    async with world() as w:
        first = await w.put("a1")
        item = f"{DOCS}/a1"
        for verb, path, body in (
            ("POST", "/dbs", {"id": "other"}),
            ("POST", DOCS, {"id": "a2", "pk": "a"}),
            ("PUT", item, {"id": "a1", "pk": "a"}),
            ("PATCH", item, {"operations": [{"op": "set", "path": "/n", "value": 1}]}),
            ("DELETE", item, None),
            ("POST", "/dbs/d/colls/c/sprocs/s", []),
        ):
            refused = await w.east.send(verb, path, body, key="a")
            assert (refused.status, refused.substatus) == (403, 3), (verb, path)
        await w.change(EAST, writes=True)
        old = await w.put("a2", w.west)
        assert (old.status, old.substatus) == (403, 3)
        (writable,) = (await w.west.send("GET", "/")).body["writableLocations"]
        assert writable == {"name": EAST, "databaseAccountEndpoint": w.east.url}
        # the position of one region counts in the other, and the account's address follows
        assert (await w.put("a2")).status == 201
        after = first.headers["lsn"]
        assert (await w.east.feed(f'"{after}"')).ids == (await w.west.feed(f'"{after}"')).ids
        assert (await w.east.feed(f'"{after}"')).ids == ["a2"]


async def test_a_region_that_is_down_refuses_connections_and_comes_back() -> None:
    async with world() as w:
        await w.change(WEST, down=True)
        for at in (w.west, w.west, replace(w.account)):
            with pytest.raises(aiohttp.ClientConnectionError):
                await w.read(at, "a1")
        fresh = aiohttp.ClientSession()
        async with fresh:
            with pytest.raises(aiohttp.ClientConnectorError):
                await replace(w.west, session=fresh).send("GET", "/")
        assert (await w.account.send("GET", "/")).status == 200  # it names the others
        assert (await w.east.send("GET", "/dbs/d/colls/c")).status == 200
        await w.change(EAST, writes=True)
        assert (await w.put("a1")).status == 201
        async with w.account.session.post(
            f"{w.account.url}_emulator/regions", json={"region": WEST, "writes": True}
        ) as refused:
            assert (refused.status, "is down" in await refused.text()) == (409, True)
        told = await w.change(WEST, down=False)
        assert [(x["down"], x["writes"]) for x in told] == [(False, False), (False, True)]
        assert (await w.read(w.west, "a1")).body["id"] == "a1"


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ({"region": "North", "lag": 1}, "there are: East US, West US"),
        ({"region": EAST, "lag": -1}, "0 to 600 seconds"),
        ({"region": EAST, "lag": 601}, "0 to 600 seconds"),
        ({"region": EAST, "writes": False}, "writes"),
        ({"region": EAST, "up": True}, "up"),
        ({"lag": 1}, "region"),
    ],
)
async def test_a_change_of_a_region_that_cannot_be_is_refused(
    body: dict[str, Any], advice: str
) -> None:
    async with (
        world() as w,
        w.account.session.post(f"{w.account.url}_emulator/regions", json=body) as refused,
    ):
        assert (refused.status, advice in await refused.text()) == (400, True)


async def test_the_only_region_cannot_go_down(by_hand: Hand) -> None:
    where = f"{by_hand.url}_emulator/regions"
    body = {"region": "South Central US", "down": True}
    async with by_hand.session.post(where, json=body) as refused:
        assert (refused.status, "only region" in await refused.text()) == (400, True)


async def test_a_fault_strikes_one_region() -> None:
    async with world(lag=0.0) as w:
        await w.put("a1")
        await w.account.control("POST", "faults", effect="error", region=EAST, status=503)
        assert [(await w.read(x, "a1")).status for x in (w.west, w.east)] == [200, 503]


async def test_an_expired_item_is_gone_from_a_region_as_long_after_as_it_lags() -> None:
    async with world() as w:
        await w.account.send("PUT", "/dbs/d/colls/c", {"id": "c", "defaultTtl": 1})
        await w.put("a1")
        w.clock[0] += FIRST_LAG
        assert (await w.read(w.east, "a1")).status == 200
        await asyncio.sleep(2.1)  # the time of day goes on by itself
        assert (await w.read(w.west, "a1")).status == 404
        assert (await w.read(w.east, "a1")).status == 200
        w.clock[0] += FIRST_LAG
        assert (await w.read(w.east, "a1")).status == 404


async def test_a_region_is_no_more_transactions_behind_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regions, "MOST_BEHIND", 2)
    async with world() as w:
        for name in ("a1", "a2", "b1"):
            await w.put(name)
        assert [(await w.read(w.east, x)).status for x in ("a1", "a2", "b1")] == [200, 404, 404]
        w.clock[0] += FIRST_LAG
        async with asyncio.timeout(30):
            while (await w.account.control("GET", "regions"))[1]["transactions_behind"]:
                pass  # nobody reads there: it keeps up by itself
        assert [(await w.read(w.east, x)).status for x in ("a1", "a2", "b1")] == [200] * 3
