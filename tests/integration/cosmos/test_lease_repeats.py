"""Changes to leases that are made by a request that the client has made for an earlier one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from changefeed.feeds.cosmos import repeating
from changefeed.feeds.cosmos.answers import Answer
from changefeed.feeds.cosmos.client import Container
from changefeed.feeds.cosmos.failover import Failover
from changefeed.stores.cosmos.items import Items
from cosmos_emulator.settings import DEVELOPMENT_KEY
from tests.support.cosmos_feeds import SESSION, CosmosWorld, Seeing


@asynccontextmanager
async def seen_items(world: CosmosWorld, **options: Any) -> AsyncIterator[tuple[Items, Seeing]]:
    """Yield the items of a container, with one that is called ``l``."""
    seeing = Seeing()
    async with CosmosClient(world.url, DEVELOPMENT_KEY, transport=seeing, **options) as client:
        database = client.get_database_client("d")
        proxy = await database.create_container_if_not_exists("l", PartitionKey("/id"))
        change = proxy.patch_item
        with patch.object(proxy, change.__name__, side_effect=change) as seeing.by_client:
            failover, properties = Failover(proxy), await proxy.read()
            items = Items(Container(where="l", failover=failover, properties=properties))
            if await items.read("l") is None:
                await items.create({"id": "l", "n": -1})
            yield items, seeing


async def changed(items: Items, *numbers: int, whole: bool = False) -> str:
    """Set the number of the item to each of these. Return the last etag."""
    found = await items.read("l")
    assert found is not None
    etag = str(found["_etag"])
    for n in numbers:
        set_n = [{"op": "set", "path": "/n", "value": n}]
        patched = items.patch_whole if whole else items.patch
        made = await patched("l", set_n, etag)
        assert made is not None
        assert isinstance(made, str) or made["n"] == n
        etag = made if isinstance(made, str) else str(made["_etag"])
    return etag


async def number(items: Items) -> Any:
    found = await items.read("l")
    return None if found is None else found["n"]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("whole", [False, True])
async def test_what_is_sent_again_is_what_the_client_would_send(
    *, world: CosmosWorld, monkeypatch: pytest.MonkeyPatch, first: bool, whole: bool
) -> None:
    async with seen_items(world) as (items, seeing):
        await changed(items, 1, whole=first)
        await changed(items, 2_000, 3, whole=whole)
        assert await number(items) == 3
    monkeypatch.setattr(repeating, "_KEPT_FOR", -1.0)
    async with seen_items(world) as (items, anew):
        await changed(items, 1, whole=first)
        await changed(items, 2_000, 3, whole=whole)
    assert (seeing.by_client.call_count, anew.by_client.call_count) == (1, 3)
    sent = seeing.sent["PATCH"]
    assert [x.lasting for x in sent] == [x.lasting for x in anew.sent["PATCH"]]
    ids = {x.headers["x-ms-activity-id"] for x in sent}
    etags = {x.headers["if-match"] for x in sent}
    assert (len(ids), len(etags)) == (3, 3)


async def test_what_the_client_reads_next_has_each_change_in_it(world: CosmosWorld) -> None:
    async with seen_items(world, consistency_level="Session") as (items, seeing):
        await changed(items, 1, 2, 3)
        await items.read("l")
        sessions = [x.session for x in seeing.sent["PATCH"]]
        assert seeing.by_client.call_count == 1
        assert len({*sessions}) == 3
        assert seeing.sent["GET"][-1].headers[SESSION] == sessions[-1]


@pytest.mark.parametrize(
    "fault",
    [
        {"effect": "error", "status": 503, "times": 1},
        {"effect": "error", "status": 401, "times": 1},
        {"effect": "error", "status": 403, "substatus": 3, "times": 1},
        {"effect": "drop", "times": 1},
    ],
)
async def test_after_any_other_answer_the_client_makes_the_change(
    world: CosmosWorld, fault: dict[str, Any]
) -> None:
    async with seen_items(world) as (items, seeing):
        await changed(items, 1, 2)
        await world.fault(operation="patch_item", **fault)
        await changed(items, 3)
        assert await number(items) == 3
        assert seeing.by_client.call_count == 2
        await changed(items, 4, 5)
        assert seeing.by_client.call_count == 2


@pytest.mark.parametrize(("status", "whole"), [(502, False), (502, True), (200, True)])
async def test_after_an_answer_that_nobody_can_read_the_client_makes_the_change(
    *, world: CosmosWorld, monkeypatch: pytest.MonkeyPatch, status: int, whole: bool
) -> None:
    async def answered(*_: Any) -> Answer:
        return Answer(status=status, headers={"etag": "e"}, body=b"<html>")

    async with seen_items(world) as (items, seeing):
        await changed(items, 1, whole=whole)
        monkeypatch.setattr(repeating.SignedRequest, "sent_again", answered)
        await changed(items, 2, whole=whole)
    assert seeing.by_client.call_count == 2


async def test_a_change_whose_answer_was_lost_is_made_once(world: CosmosWorld) -> None:
    """Who made it finds it by what it wrote: see ``Items``."""
    async with seen_items(world) as (items, seeing):
        etag = await changed(items, 1, 2)
        await world.fault(operation="patch_item", effect="drop", when="after", times=1)
        add_one = [{"op": "incr", "path": "/n", "value": 1}]
        assert await items.patch("l", add_one, etag) is None
        assert (await number(items), seeing.by_client.call_count) == (3, 2)


async def test_an_etag_of_before_another_change_is_refused(world: CosmosWorld) -> None:
    async with seen_items(world) as (items, _), seen_items(world) as (others, _):
        before = await changed(items, 1, 2)
        await changed(others, 3)
        refused = await items.patch("l", [{"op": "set", "path": "/n", "value": 4}], before)
        assert (refused, await number(items)) == (None, 3)


@pytest.mark.parametrize("how", ["old", "suspected", "traced", "hedged", "broken"])
async def test_where_requests_are_old_or_watched_the_client_makes_all_of_them(
    world: CosmosWorld, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "old":
        monkeypatch.setattr(repeating, "_KEPT_FOR", -1.0)
    if how == "traced":
        monkeypatch.setenv("AZURE_TRACING_ENABLED", "True")
    if how == "broken":  # by the breaker of circuits
        monkeypatch.setenv("AZURE_COSMOS_ENABLE_CIRCUIT_BREAKER", "True")
    async with seen_items(world, availability_strategy=how == "hedged") as (items, seeing):
        if how == "suspected":  # its region
            items._failover.suspected_at = float("inf")
        await changed(items, 1, 2, 3)
    assert seeing.by_client.call_count == 3
