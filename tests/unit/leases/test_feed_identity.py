"""Leases know which feed they are about, and are not used for another."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.feed_identity import compare_feeds, refuse_another_feed
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.timeouts import BoundedContainer
from tests.support.lease_containers import sqlite, sqlite_separate

pytestmark = pytest.mark.real_time

Open = Callable[[Path], AbstractAsyncContextManager[LeaseContainer]]
NEW = Lease(range=FeedRange(id=RangeId("r0")), continuation=Continuation("c0"))
files = pytest.mark.parametrize("opened", [sqlite, sqlite_separate])


@files
async def test_leases_of_a_feed_that_was_recreated_are_refused(
    opened: Open, tmp_path: Path
) -> None:
    async with opened(tmp_path) as leases:
        await refuse_another_feed(leases, "feed-1")
        await leases.create(NEW)
    async with opened(tmp_path) as leases:
        await refuse_another_feed(leases, "feed-1")
        with pytest.raises(ContainerRefused, match=r"another feed \(feed-1\).*reset --all"):
            await refuse_another_feed(leases, "feed-2")
        with pytest.raises(ContainerRefused):
            await refuse_another_feed(leases, "feed-2")


@files
async def test_leases_of_before_there_were_identities_take_the_first_feed(
    opened: Open, tmp_path: Path
) -> None:
    async with opened(tmp_path) as leases:
        await leases.create(NEW)
        await refuse_another_feed(leases, "feed-1")
        with pytest.raises(ContainerRefused):
            await refuse_another_feed(leases, "feed-2")


@files
async def test_to_compare_feeds_keeps_nothing(opened: Open, tmp_path: Path) -> None:
    async with opened(tmp_path) as leases:
        await leases.create(NEW)
        assert await compare_feeds(leases, "feed-1") is None
        await refuse_another_feed(leases, "feed-2")
        assert await compare_feeds(leases, "feed-2") == "feed-2"
        with pytest.raises(ContainerRefused, match=r"another feed \(feed-2\)"):
            await compare_feeds(leases, "feed-1")


@files
async def test_a_container_without_leases_takes_another_feed(
    opened: Open, tmp_path: Path
) -> None:
    async with opened(tmp_path) as leases:
        await refuse_another_feed(leases, "feed-1")
        await refuse_another_feed(leases, "feed-2")
        await leases.create(NEW)
        with pytest.raises(ContainerRefused):
            await refuse_another_feed(leases, "feed-1")


@files
async def test_leases_that_were_reset_are_about_the_new_feed(
    opened: Open, tmp_path: Path
) -> None:
    async with opened(tmp_path) as leases:
        await refuse_another_feed(leases, "feed-1")
        await leases.create(NEW)
        bounded = BoundedContainer(leases, timeout=5, on_call=lambda _: None)
        await bounded.keep_feed_identity("feed-2")
        await refuse_another_feed(bounded, "feed-2")


async def test_a_container_that_keeps_no_identity_takes_any_feed() -> None:
    leases = MemoryLeases()
    bounded = BoundedContainer(leases, timeout=5, on_call=lambda _: None)
    await leases.create(NEW)
    for identity in ("feed-1", "feed-2"):
        await refuse_another_feed(leases, identity)
        await refuse_another_feed(bounded, identity)
    assert await bounded.feed_identity() is None
