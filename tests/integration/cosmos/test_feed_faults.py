"""Servers that throttle, fail, stall or were replaced; and keys that nobody may see."""

import asyncio
import logging
import time
from typing import Any
from unittest.mock import Mock

import pytest

from changefeed.feeds.cosmos import errors
from changefeed.feeds.cosmos import feed as feed_module
from changefeed.feeds.cosmos.address import CosmosAccess, CosmosAddress
from changefeed.feeds.cosmos.failover import Failover
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.opening import open_cosmos
from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeRefused
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.runtime.secret import Secret
from cosmos_emulator import EmulatorSettings
from cosmos_emulator.testing import running
from tests.support.cosmos_feeds import CosmosWorld
from tests.support.processes import PATIENCE

ZERO = RangeId("0")
BEGINNING = Position('"0"')
SECRET = "c2VjcmV0LW9mLXRoZS1hY2NvdW50LW5vYm9keS1tYXktc2VlLWl0"


async def test_throttling_is_passed_on_with_the_wait_that_is_asked_for_and_not_repeated(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    await world.put("a")
    await world.fault(
        effect="error", operation="change_feed", status=429, substatus=3200, retry_after_ms=70
    )
    await world.counted()
    for ask in (
        feed.read(FeedRange(id=ZERO), BEGINNING, 5),
        feed.lags({FeedRange(id=ZERO): BEGINNING}),
        feed.start(FeedRange(id=ZERO), "now"),
    ):
        with pytest.raises(FeedUnavailable, match="throttles") as throttled:
            await ask
        assert throttled.value.retry_after == 0.07
    assert (await world.counted())["change_feed"] == {"429": 3}
    await world.no_faults()
    assert len((await feed.read(FeedRange(id=ZERO), BEGINNING, 5)).changes) == 1


@pytest.mark.parametrize("status", [410, 429])
async def test_a_listing_that_is_turned_away_is_not_repeated_either(
    world: CosmosWorld, feed: CosmosFeed, status: int
) -> None:
    await world.fault(effect="error", operation="read_ranges", status=status)
    await world.counted()
    with pytest.raises(FeedUnavailable):
        await feed.ranges()
    assert (await world.counted())["read_ranges"] == {str(status): 1}


@pytest.mark.parametrize(
    ("status", "substatus"),
    [(408, 0), (449, 0), (500, 0), (503, 0), (404, 1002)],  # a replica is behind, the last
)
async def test_what_passes_by_itself_may_be_asked_again_and_is_asked_a_few_times_at_most(
    world: CosmosWorld,
    feed: CosmosFeed,
    status: int,
    substatus: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suspect = Mock()
    monkeypatch.setattr(Failover, "_suspect", suspect)
    await world.fault(
        effect="error", operation="change_feed", status=status, substatus=substatus
    )
    await world.counted()
    with pytest.raises(FeedUnavailable, match=str(status)):
        await feed.read(FeedRange(id=ZERO), BEGINNING, 5)
    assert (await world.counted())["change_feed"][str(status)] <= 4
    assert suspect.called is (status >= 500), "the client looks for its regions"


@pytest.mark.parametrize("operation", ["change_feed", "read_ranges"])
@pytest.mark.parametrize("substatus", [3, 1008])
async def test_a_write_region_that_moves_is_no_reason_to_die(
    world: CosmosWorld, operation: str, substatus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "TIMEOUT", 1.0)
    async with world.feed() as feed:
        await world.fault(effect="error", operation=operation, status=403, substatus=substatus)
        ask = (
            feed.ranges()
            if operation == "read_ranges"
            else feed.read(FeedRange(id=ZERO), BEGINNING, 5)
        )
        with pytest.raises(FeedUnavailable):  # the client looks for the region meanwhile
            await ask


@pytest.mark.parametrize(
    ("status", "substatus", "advice"),
    [(401, 0, "check the key"), (403, 5300, "the rights"), (400, 0, "refused to be read")],
)
async def test_what_does_not_pass_is_refused_with_advice(
    world: CosmosWorld, feed: CosmosFeed, status: int, substatus: int, advice: str
) -> None:
    await world.fault(
        effect="error", operation="change_feed", status=status, substatus=substatus
    )
    with pytest.raises(FeedRefused, match=advice) as refused:
        await feed.read(FeedRange(id=ZERO), BEGINNING, 5)
    assert isinstance(refused.value, RangeRefused) == (status == 400)


async def test_a_stalled_answer_is_given_up_in_time_and_the_next_one_is_read(
    world: CosmosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put("a")
    monkeypatch.setattr(errors, "TIMEOUT", 0.4)
    async with world.feed() as feed:
        await world.fault(effect="delay", operation="change_feed", seconds=300, times=1)
        begun = time.monotonic()
        with pytest.raises(FeedUnavailable, match=r"did not answer within 0\.4 s"):
            await feed.read(FeedRange(id=ZERO), BEGINNING, 5)
        assert time.monotonic() - begun < 100
        assert len((await feed.read(FeedRange(id=ZERO), BEGINNING, 5)).changes) == 1


async def test_a_dropped_connection_may_be_asked_again(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    await world.put("a")
    async with asyncio.timeout(PATIENCE):
        await world.fault(effect="drop", operation="change_feed", times=1)
        try:
            page = await feed.read(FeedRange(id=ZERO), BEGINNING, 5)
        except FeedUnavailable:
            page = await feed.read(FeedRange(id=ZERO), BEGINNING, 5)
    assert len(page.changes) == 1


async def test_a_container_that_was_recreated_is_refused_by_every_method(
    world: CosmosWorld, feed: CosmosFeed
) -> None:
    await world.put("a")
    page = await feed.read(FeedRange(id=ZERO), BEGINNING, 5)
    await world.delete()
    with pytest.raises(FeedRefused, match=r"not there|deleted and recreated"):
        await feed.read(FeedRange(id=ZERO), page.position, 5)
    await world.create()
    await world.put("other")
    asked: list[Any] = [
        feed.read(FeedRange(id=ZERO), page.position, 5),
        feed.read(FeedRange(id=ZERO), BEGINNING, 5),
        feed.ranges(),
    ]
    for ask in asked:
        with pytest.raises(FeedRefused, match=r"deleted and recreated.*Reset the leases"):
            await ask


async def test_a_position_beyond_the_end_is_waited_for_and_then_refused(
    world: CosmosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica may lag for a while; a container that was recreated stays behind."""
    await world.put("a")
    old = Position('"7052"')
    async with world.feed() as feed:
        page = await feed.read(FeedRange(id=ZERO), old, 5)
        assert (list(page.changes), page.position) == ([], old)
        monkeypatch.setattr(feed_module, "_REPLICA_LAG", 0.0)
        with pytest.raises(FeedRefused, match=r"lies beyond the end.*is at 1.*recreated"):
            await feed.read(FeedRange(id=ZERO), old, 5)
        low, _ = await world.by_hand.split(range="0")
        page = await feed.read(
            FeedRange(id=RangeId(low["id"])), old, 5
        )  # a merge may be in its past
        assert not page.changes


async def test_a_wrong_key_is_refused_and_no_key_is_ever_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = EmulatorSettings(port=0, key=SECRET)
    async with running(settings) as url:
        address = CosmosAddress(endpoint=url, database="d", container="c")
        wrong = CosmosAccess(key=Secret.of(SECRET[::-1].strip("=") + "=="))
        with pytest.raises(FeedRefused, match="check the key") as refused:
            async with open_cosmos(address, wrong):
                pass
        right = CosmosAccess(key=Secret.of(SECRET))
        with pytest.raises(FeedRefused, match="is not there") as missing:
            async with open_cosmos(address, right):
                pass
        shown = repr(refused.value) + repr(missing.value) + caplog.text
    for key in (SECRET, SECRET[::-1]):
        assert key[:12] not in shown
