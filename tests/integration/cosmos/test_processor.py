"""A processor over containers that a program has opened: shared, stopped, failed, refused."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from azure.cosmos import ContainerProxy as BlockingProxy
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from fastapi import FastAPI

from changefeed import (
    Change,
    ChangeFeedProcessor,
    Failure,
    FeedRefused,
    ObserverSettings,
    ProcessorGroup,
    RangeId,
    RetrySettings,
    Settings,
    StoreRefused,
    UserError,
    open_container,
)
from changefeed.feeds.cosmos.opening import feed_over
from changefeed.host.settings import LeaseSettings
from changefeed.stores.cosmos.document_ids import processor_prefix
from cosmos_emulator import DEVELOPMENT_KEY
from tests.support.cosmos_feeds import CosmosWorld, cosmos_world
from tests.support.dotnet_processor import DotNetHost
from tests.support.looking import until
from tests.support.processes import PATIENCE, started

ROOT = Path(__file__).parents[3]
KEYS = [f"key-{n}" for n in range(12)]
QUICK = Settings(
    leases=LeaseSettings(expiration=4).with_timing(balance_interval=0.05, rebalance_delay=0),
)


class Program:
    """What has a client of its own, and two containers of it."""

    def __init__(self, world: CosmosWorld, client: CosmosClient) -> None:
        database = client.get_database_client("d")
        self.world = world
        self.feed = database.get_container_client("c")
        self.leases = database.get_container_client("leases")
        self.seen: list[tuple[str, str]] = []
        self._more = asyncio.Condition()

    def processor(
        self, name: str, on_changes: Any = None, **options: Any
    ) -> ChangeFeedProcessor:
        given: dict[str, Any] = {"processor_name": "to-search", "settings": QUICK, **options}

        async def see(changes: Sequence[Change]) -> None:
            self.seen += [(name, x.value()["id"]) for x in changes]
            async with self._more:
                self._more.notify_all()

        return ChangeFeedProcessor(
            self.feed,
            self.leases,
            on_changes or see,
            instance_name=name,
            poll_interval=timedelta(milliseconds=50),
            **given,
        )

    async def put(self, *ids: str) -> None:
        for item in ids:
            await self.feed.upsert_item({"id": item, "pk": item})

    async def until(self, *ids: str, by: str | None = None) -> None:
        def arrived() -> bool:
            return {*ids} <= {x for who, x in self.seen if by in {None, who}}

        async with asyncio.timeout(PATIENCE), self._more:
            await self._more.wait_for(arrived)


@pytest_asyncio.fixture
async def program() -> AsyncIterator[Program]:
    async with (
        cosmos_world(ranges=2) as world,
        CosmosClient(world.url, DEVELOPMENT_KEY) as client,
    ):
        await client.get_database_client("d").create_container("leases", PartitionKey("/id"))
        yield Program(world, client)


async def test_two_processors_share_a_container_and_one_goes_on_for_the_other(
    program: Program,
) -> None:
    first, second = program.processor("one"), program.processor("two")
    await program.put(*KEYS)
    async with first:
        await program.until(*KEYS)
        async with second:
            await until(lambda: len(first.host.leases) == len(second.host.leases) == 1)
        await program.put("later")
        await program.until("later", by="one")

    assert sorted(x for _, x in program.seen) == sorted([*KEYS, "later"])
    await program.put("the client is the program's")  # and still open
    async with program.processor("three"):
        await program.until("the client is the program's", by="three")
    assert [x for who, x in program.seen if who == "three"] == ["the client is the program's"]


async def test_its_leases_are_those_of_the_processor_of_that_name(program: Program) -> None:
    await program.put("tea")
    async with program.processor("one", processor_name="billing"):
        await program.until("tea")
    place = program.world.address.endpoint.removeprefix("http:") + "d/leases"
    async with open_container(f"cosmos+http:{place}?processor=billing&feed=d/c") as container:
        assert {x.range_id for x in await container.list()} == {"0", "1"}


@pytest.mark.parametrize("name", ["", "billing"], ids=["no prefix", "a prefix"])
async def test_leases_of_a_trigger_of_azure_functions_are_taken_and_given_back(
    program: Program, name: str
) -> None:
    """The trigger is .NET's processor; its name is ``leaseContainerPrefix``, or empty."""
    _, database, _, container = (await program.feed.read())["_self"].strip("/").split("/")
    prefix = processor_prefix(name, "127.0.0.1", database, container)
    trigger = DotNetHost(program.leases, prefix, "function-app")
    halves = [("0", "", "1FFFFFFFFFFFFFFF"), ("1", "1FFFFFFFFFFFFFFF", "FF")]
    keys = ("id", "minInclusive", "maxExclusive")
    await trigger.initialize([dict(zip(keys, x, strict=True)) for x in halves])
    await program.put("had by the function")
    async with feed_over(program.feed, mode="latest-version") as feed:
        ends = {x.id: await feed.start(x, "now") for x in await feed.ranges()}
    for lease in await trigger.leases():
        mine = await trigger.acquire(lease)
        at = ends[RangeId(lease["LeaseToken"])]
        await trigger.release(await trigger.checkpoint(mine, at))
    before = {x["LeaseToken"] for x in await trigger.leases()}

    processor = program.processor("one", processor_name=name)
    async with processor:
        await until(lambda: len(processor.host.leases) == len(before))
        await program.put("comes after")
        await program.until("comes after")

    given_back = await trigger.leases()
    assert {x["LeaseToken"]: x["Owner"] for x in given_back} == dict.fromkeys(before)
    assert [x for _, x in program.seen] == ["comes after"]
    for lease in given_back:
        await trigger.acquire(lease)


async def test_a_failure_cancels_the_block_and_is_raised_at_its_end(program: Program) -> None:
    async def fail(_: Sequence[Change]) -> None:
        raise MemoryError

    await program.put(*KEYS)  # it fails on each, so memory is what is missing
    observer = ObserverSettings(retry=RetrySettings(attempts=1))
    once = Settings(leases=QUICK.leases, observer=observer)

    async def block() -> None:
        async with program.processor("one", fail, settings=once):
            await asyncio.sleep(20)
            raise AssertionError("the block was not cancelled")

    with pytest.raises(Failure, match="ran out of memory"):
        await block()


async def test_an_error_in_the_block_stops_it_and_is_raised_itself(program: Program) -> None:
    processor = program.processor("one")
    with pytest.raises(ZeroDivisionError):
        async with processor:
            raise ZeroDivisionError
    await processor.wait()  # it has ended, in order
    with pytest.raises(UserError, match="make another"):
        await processor.start()


async def test_an_account_that_is_busy_at_the_start_is_asked_again(program: Program) -> None:
    await program.world.fault(effect="error", operation="read_ranges", status=503, times=6)
    async with program.processor("one"):
        await program.put("tea")
        await program.until("tea")


async def test_it_lives_as_long_as_an_application(program: Program) -> None:
    processor = program.processor("one")
    app = FastAPI(lifespan=processor.lifespan)
    async with app.router.lifespan_context(app):
        await program.put("tea")
        await program.until("tea")
    assert not processor.host.leases


async def test_a_group_starts_and_stops_all_of_its_processors(program: Program) -> None:
    names = ("to-search", "to-mail")
    both = [program.processor(x, processor_name=x) for x in names]
    group = ProcessorGroup(*both)
    async with group:
        await program.put(*KEYS)
        for name in names:
            await program.until(*KEYS, by=name)
    assert [len(x.host.leases) for x in both] == [0, 0]
    await group.wait()  # they have ended, in order
    with pytest.raises(UserError, match="make another"):
        await group.start()


async def test_one_that_fails_in_a_group_stops_the_others_and_is_raised(
    program: Program,
) -> None:
    async def fail(_: Sequence[Change]) -> None:
        raise MemoryError

    once = ObserverSettings(retry=RetrySettings(attempts=1))
    good = program.processor("good", processor_name="good")
    bad = program.processor(
        "bad", fail, processor_name="bad", settings=Settings(leases=QUICK.leases, observer=once)
    )

    async def block() -> None:
        async with ProcessorGroup(good, bad):
            await program.put(*KEYS)
            await asyncio.sleep(20)
            raise AssertionError("the block was not cancelled")

    with pytest.raises(Failure, match="ran out of memory") as caught:
        await block()
    assert caught.value.__notes__ == ["processor bad"]
    assert not good.host.leases
    await good.wait()


async def test_a_group_in_which_one_cannot_start_starts_none(program: Program) -> None:
    good = program.processor("good", processor_name="good")
    bad = ChangeFeedProcessor(program.feed, program.feed, print, processor_name="bad")
    with pytest.raises(StoreRefused, match="partition key"):
        await ProcessorGroup(good, bad).start()
    with pytest.raises(UserError, match="make another"):
        await good.start()


async def test_two_of_one_name_are_no_group(program: Program) -> None:
    with pytest.raises(UserError, match="processor to-search, processor to-search"):
        ProcessorGroup(program.processor("a"), program.processor("b"))
    with pytest.raises(UserError, match="none"):
        ProcessorGroup()


async def test_what_is_no_async_container_is_refused(program: Program) -> None:
    found = BlockingProxy(cast("Any", None), "dbs/d", "c")
    with pytest.raises(FeedRefused, match=r"azure\.cosmos\.aio\.CosmosClient"):
        await ChangeFeedProcessor(
            cast("Any", found), program.leases, print, processor_name="p"
        ).start()
    with pytest.raises(StoreRefused, match=r"azure\.cosmos\.aio\.CosmosClient"):
        await ChangeFeedProcessor(
            program.feed, cast("Any", found), print, processor_name="p"
        ).start()
    with pytest.raises(StoreRefused, match="partition key"):
        await ChangeFeedProcessor(program.feed, program.feed, print, processor_name="p").start()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_items": 0},
        {"lease_expiration": timedelta(0)},
        {"start_time": datetime(2026, 1, 31)},  # noqa: DTZ001 - without a zone
        {"start_time": datetime.now(UTC) + timedelta(days=1)},
        {"instance_name": ""},
    ],
    ids=["max_items", "lease_expiration", "no zone", "in the future", "instance_name"],
)
async def test_a_value_out_of_its_range_is_refused_at_once(wrong: dict[str, Any]) -> None:
    nothing = cast("Any", None)
    with pytest.raises(UserError, match=next(iter(wrong))):
        ChangeFeedProcessor(nothing, nothing, print, processor_name="p", **wrong)


async def test_a_program_that_is_interrupted_gives_its_leases_back(
    program: Program, tmp_path: Path
) -> None:
    async with CosmosClient(program.world.url, DEVELOPMENT_KEY) as client:
        shop = await client.create_database("shop")
        orders = await shop.create_container("orders", PartitionKey("/pk"))
        leases = await shop.create_container("leases", PartitionKey("/id"))
        await orders.create_item({"id": "tea", "pk": "p"})
        there = {"ACCOUNT": program.world.url, "ACCOUNT_KEY": DEVELOPMENT_KEY}
        paths = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        async with started(
            sys.executable,
            *("-m", "samples.embedding.cosmos_program"),
            cwd=tmp_path,
            env={**os.environ, **paths, **there},
        ) as process:
            await process.prints("order tea")
            process.process.send_signal(signal.SIGINT)
            await process.ends()
        owners = leases.query_items(
            "SELECT VALUE c.Owner FROM c WHERE IS_DEFINED(c.LeaseToken)"
        )
        assert [x async for x in owners] == [None]
