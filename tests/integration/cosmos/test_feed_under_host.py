"""A host over a Cosmos DB feed, in real seconds: splits with it, and without it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from changefeed.host.settings import (
    FeedSettings,
    HostSettings,
    LeaseSettings,
    Settings,
    WebSettings,
)
from changefeed.host.wiring import open_host
from changefeed.observers.adapters import adapt
from changefeed.runtime.errors import StoreRefused
from tests.support.cosmos_feeds import CosmosWorld, Seen
from tests.support.processes import PATIENCE

KEYS = [f"key-{n}" for n in range(12)]


def in_file(path: Path) -> LeaseSettings:
    return lease_settings(f"sqlite:{path}")


def lease_settings(container: str) -> LeaseSettings:
    return LeaseSettings(
        address=container,
        create=True,
        expiration=4,
    ).with_timing(balance_interval=0.05, rebalance_delay=0, ranges_interval=0.1)


def settings(world: CosmosWorld, path: Path, **feed: object) -> Settings:
    address = world.url.replace("http://", "cosmos+http://") + "d/c"
    return Settings(
        host=HostSettings(name="anna"),
        feed=FeedSettings.model_validate({"address": address, "poll_interval": 0.05, **feed}),
        leases=in_file(path),
        web=WebSettings(port="off"),
    )


@asynccontextmanager
async def running_host(settings: Settings, seen: Seen) -> AsyncIterator[None]:
    async with open_host(settings, adapt(seen.see)) as host, asyncio.TaskGroup() as group:
        group.create_task(host.run())
        try:
            yield
        finally:
            host.stop()


async def test_a_host_reads_halves_on_after_a_merge_with_it_and_without_it(
    world: CosmosWorld, tmp_path: Path
) -> None:
    config, seen = settings(world, tmp_path / "leases.db", page_size=5), Seen(KEYS)
    low, high = await world.by_hand.split(range="0")
    lowest, lower = await world.by_hand.split(range=low["id"])
    await world.write(KEYS, 0)
    async with running_host(config, seen):
        await seen.reach(0)
        await world.by_hand.merge(lowest["id"], lower["id"])
        await world.write(KEYS, 1)
        await seen.reach(1)
        await asyncio.sleep(0.5)
    async with running_host(config, seen):  # from the leases of halves alone
        await world.write(KEYS, 2)
        await seen.reach(2)
        await asyncio.sleep(0.5)
    (merged,) = [
        x["id"]
        for x in (await world.by_hand.control("GET", ""))[0]["ranges"]
        if not x["gone"] and x["low"] == ""
    ]
    await world.by_hand.merge(merged, high["id"])
    await world.write(KEYS, 3)
    async with running_host(config, seen):
        await seen.reach(3)
        await asyncio.sleep(0.5)
    assert seen.steps == {x: [0, 1, 2, 3] for x in KEYS}


def settings_with_leases_in_cosmos(world: CosmosWorld, tmp_path: Path) -> Settings:
    container = world.url.replace("http://", "cosmos+http://") + "leases/leases"
    made = settings(world, tmp_path / "none", page_size=5)
    return made.model_copy(update={"leases": lease_settings(container)})


async def test_a_container_that_was_recreated_while_no_host_ran_is_not_read_from_old_positions(
    world: CosmosWorld, tmp_path: Path
) -> None:
    config, seen = settings_with_leases_in_cosmos(world, tmp_path), Seen(KEYS)
    await world.write(KEYS, 0)
    async with running_host(config, seen):
        await seen.reach(0)
    await world.delete()
    await world.create()
    for step in range(1, 4):  # beyond all positions of the leases
        await world.write(KEYS, step)
    with pytest.raises(StoreRefused, match=r"deleted and recreated.*reset --all"):
        async with open_host(config, seen.see):
            pass


@pytest.mark.parametrize("status", [400, 401, 403, 404, 412, 413, 422, 451])
async def test_a_refusal_in_passing_ends_no_host_and_pauses_no_range(
    world: CosmosWorld, tmp_path: Path, status: int
) -> None:
    seen = Seen(KEYS)
    await world.write(KEYS, 0)
    async with running_host(settings(world, tmp_path / "leases.db"), seen):
        await seen.reach(0)
        for operation in ("change_feed", "read_ranges"):
            await world.fault(effect="error", operation=operation, status=status, times=2)
        await world.write(KEYS, 1)
        await seen.reach(1)


async def test_a_dotnet_host_beside_a_first_host_need_not_wait_for_its_leases(
    world: CosmosWorld, tmp_path: Path
) -> None:
    config = settings_with_leases_in_cosmos(world, tmp_path)
    slow = config.leases.with_timing(balance_interval=60.0)
    async with running_host(config.model_copy(update={"leases": slow}), Seen(KEYS)):
        found: set[str] = set()
        async with asyncio.timeout(PATIENCE):
            while not any(".." in x for x in found):
                listed = await world.by_hand.send("GET", "/dbs/leases/colls/leases/docs")
                found = {x["id"] for x in (listed.body or {}).get("Documents", [])}
        await asyncio.sleep(1.0)
        listed = await world.by_hand.send("GET", "/dbs/leases/colls/leases/docs")
        marks = {x["id"].rpartition(".")[2] for x in listed.body["Documents"]}
        assert "info" in marks
        assert "lock" not in marks


async def test_a_lease_container_that_is_deleted_and_made_again_under_a_host_is_filled_again(
    world: CosmosWorld, tmp_path: Path
) -> None:
    config, seen = settings_with_leases_in_cosmos(world, tmp_path), Seen(KEYS)
    at = "/dbs/leases/colls"
    await world.write(KEYS, 0)
    async with running_host(config, seen):
        await seen.reach(0)
        made = (await world.by_hand.send("GET", f"{at}/leases")).body
        assert (await world.by_hand.send("DELETE", f"{at}/leases")).status == 204
        await asyncio.sleep(1.0)
        again = {x: made[x] for x in ("id", "partitionKey", "defaultTtl", "indexingPolicy")}
        assert (await world.by_hand.send("POST", at, again)).status == 201
        await world.write(KEYS, 1)
        await seen.reach(1)
        found = (await world.by_hand.send("GET", f"{at}/leases/docs")).body["Documents"]
        lease = next(x for x in found if ".." in x["id"])
        assert '"epoch":2' in lease["properties"]["changefeed"]
    assert {x: sorted({*y}) for x, y in seen.steps.items()} == {x: [0, 1] for x in KEYS}
