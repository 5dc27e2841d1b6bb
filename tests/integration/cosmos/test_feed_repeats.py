"""Pages that are asked for by a request that the client has made for an earlier one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from aiohttp import web
from azure.cosmos.aio import CosmosClient
from azure.cosmos.documents import SSLConfiguration

from changefeed.feeds.cosmos import repeating
from changefeed.feeds.cosmos.address import Mode
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.opening import feed_over
from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.feeds.feed import FeedRange, Position, RangeId
from cosmos_emulator.settings import DEVELOPMENT_KEY
from tests.support.certificates import Authority
from tests.support.cosmos_feeds import CosmosWorld, Seeing

ZERO, AT_3 = FeedRange(id=RangeId("0")), Position('"3"')


@asynccontextmanager
async def seen_feed(
    world: CosmosWorld, mode: Mode = "latest-version", **options: Any
) -> AsyncIterator[tuple[CosmosFeed, Seeing]]:
    seeing = Seeing()
    async with CosmosClient(world.url, DEVELOPMENT_KEY, transport=seeing, **options) as client:
        container = client.get_database_client("d").get_container_client("c")
        query = container.query_items_change_feed
        with patch.object(container, query.__name__, side_effect=query) as seeing.by_client:
            async with feed_over(container, mode=mode) as feed:
                yield feed, seeing


async def pages(feed: CosmosFeed, *lsns: int, found: FeedRange = ZERO) -> Sequence[str]:
    """Read a change behind each of these."""
    read = [await feed.read(found, Position(f'"{x}"'), 1) for x in lsns]
    return [y.id for x in read for y in x.changes]


@pytest.mark.parametrize("mode", ["latest-version", "all-versions"])
@pytest.mark.parametrize("lsns", [(1, 2), (0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("of_part", [False, True])
async def test_what_is_sent_again_is_what_the_client_would_send(
    *,
    world: CosmosWorld,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    lsns: tuple[int, int],
    of_part: bool,
) -> None:
    await world.write("abcd", 0)
    async with seen_feed(world, mode, proxies={"http": world.url}) as (feed, seeing):
        whole = (await feed.ranges())[0]
        found = feed.split(whole, 2)[1] if of_part else whole
        await pages(feed, *lsns, found=found)
    monkeypatch.setattr(repeating, "_KEPT_FOR", 0.0)
    async with seen_feed(world, mode, proxies={"http": world.url}) as (feed, anew):
        await pages(feed, *lsns, found=found)
    assert (seeing.by_client.call_count, anew.by_client.call_count) == (1, 2)
    first, again = seeing.sent["GET"]
    assert again.lasting == anew.sent["GET"][1].lasting
    assert again.how["read_timeout"] < first.how["read_timeout"], "the client may know better"
    assert first.headers["x-ms-activity-id"] != again.headers["x-ms-activity-id"]


async def test_what_is_sent_again_shows_the_certificate_of_the_client(
    world: CosmosWorld, tmp_path: Path
) -> None:
    tls = SSLConfiguration()
    shown = tls.SSLCertFile, tls.SSLKeyFile = [
        str(x) for x in Authority(tmp_path / "ca").issue("client")
    ]
    await world.write("abc", 0)
    async with seen_feed(world, ssl_config=tls) as (feed, seeing):
        await pages(feed, 1, 2)
    assert seeing.by_client.call_count == 1
    assert [x.how["connection_cert"] for x in seeing.sent["GET"]] == [(*shown,)] * 2


async def test_pages_of_a_range_that_are_asked_at_once_are_sent_again(
    world: CosmosWorld,
) -> None:
    await world.write("abcd", 0)
    async with seen_feed(world) as (feed, seeing):
        await pages(feed, 1)
        first, second, lags = await asyncio.gather(
            pages(feed, 1), pages(feed, 2), feed.lags({ZERO: AT_3})
        )
    assert (first, second, lags) == (["b-0"], ["c-0"], {ZERO.id: 1})
    assert seeing.by_client.call_count == 1


@pytest.mark.parametrize(
    "fault",
    [
        {"effect": "error", "status": 503, "times": 1},
        {"effect": "error", "status": 401, "times": 1},
        {"effect": "error", "status": 404, "substatus": 1002, "times": 1},
        {"effect": "drop", "times": 2},  # a GET is sent again at once
    ],
)
async def test_after_what_the_client_knows_better_it_asks_itself(
    world: CosmosWorld, fault: dict[str, Any]
) -> None:
    await world.write("abcdef", 0)
    async with seen_feed(world) as (feed, seeing):
        assert await pages(feed, 1, 2) == ["b-0", "c-0"]
        await world.fault(operation="change_feed", **fault)
        assert await pages(feed, 3) == ["d-0"]
        assert seeing.by_client.call_count == 2
        assert await pages(feed, 4, 5) == ["e-0", "f-0"]
        assert seeing.by_client.call_count == 2


async def test_pages_that_a_proxy_compresses_are_read(
    world: CosmosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def compressed(answer: web.Response, request: Any) -> Any:
        if answer.body:
            answer.enable_compression(web.ContentCoding.gzip)
        return await web.StreamResponse.prepare(answer, request)

    await world.write("abc", 0)
    monkeypatch.setattr(web.Response, "prepare", compressed)
    async with seen_feed(world) as (feed, seeing):
        assert (await pages(feed, 1, 2), seeing.by_client.call_count) == (["b-0", "c-0"], 1)


@pytest.mark.parametrize(
    ("headers", "body"),
    [({"ETag": ""}, None), ({"Content-Encoding": "gzip"}, None), ({}, b"<html>")],
    ids=["no etag", "not compressed", "no page"],
)
async def test_after_an_answer_that_cannot_be_read_the_client_asks_itself(
    world: CosmosWorld,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    body: bytes | None,
) -> None:
    async def answered(answer: web.Response, request: Any) -> Any:
        if is_wrong:
            answer.headers.update(headers)
            answer.body = answer.body if body is None else body
        return await web.StreamResponse.prepare(answer, request)

    is_wrong = False
    await world.write("abcd", 0)
    monkeypatch.setattr(web.Response, "prepare", answered)
    async with seen_feed(world) as (feed, seeing):
        await pages(feed, 1, 2)
        is_wrong = True
        with pytest.raises(FeedError):
            await pages(feed, 3)
        assert seeing.by_client.call_count == 1
        is_wrong = False
        assert (await pages(feed, 3), seeing.by_client.call_count) == (["d-0"], 2)


async def test_throttling_is_passed_on_without_another_request(world: CosmosWorld) -> None:
    await world.write("abc", 0)
    async with seen_feed(world) as (feed, _):
        await pages(feed, 1)
        await world.fault(operation="change_feed", effect="error", status=429, times=1)
        await world.counted()
        with pytest.raises(FeedUnavailable, match="throttles"):
            await pages(feed, 2)
        assert (await world.counted())["change_feed"] == {"429": 1}
        assert await pages(feed, 2) == ["c-0"]


async def test_a_client_that_was_closed_reads_nothing_more(world: CosmosWorld) -> None:
    await world.put("a")
    async with seen_feed(world) as (feed, _):
        await pages(feed, 1)
    with pytest.raises((FeedRefused, FeedUnavailable)):
        await pages(feed, 1)
