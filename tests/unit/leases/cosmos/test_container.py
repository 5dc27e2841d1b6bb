"""Leases in Cosmos DB: what one question that fails leaves behind for the next."""

import asyncio
from typing import Any

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, Position, StartAt
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.cosmos.changes import LeaseChanges
from changefeed.leases.cosmos.container import CosmosLeases
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import HostName, Incarnation
from changefeed.runtime.errors import StoreUnavailable
from changefeed.stores.cosmos.document_ids import DocumentIds
from changefeed.stores.cosmos.items import Document, Operations
from changefeed.stores.store import CallLimits
from cosmos_emulator.patching import patched
from tests.support import make

NAMES = DocumentIds("p")
WHOLE = make.lease(make.feed_range("0", high="FF"), at='"0"')


class FakeItems:
    """Items that nobody has stored yet. Hosts cannot be listed, and the document that says that
    all leases are there gets no answer, until the container is ``well``.
    """

    def __init__(self) -> None:
        self.well = asyncio.Event()
        self.created: list[str] = []

    def bounded(self, _: CallLimits) -> "FakeItems":
        return self

    def keyed(self, document: Document) -> Document:
        return document

    async def read(self, _: str) -> Document | None:
        return None

    async def create(self, document: Document) -> Document:
        if document["id"] == NAMES.info:
            await self.well.wait()
        self.created.append(document["id"])
        return {**document, "_etag": '"1"'}

    async def query(self, _: str, *, begin: str) -> list[Document]:
        if begin != NAMES.leases and not self.well.is_set():
            await asyncio.sleep(1)
            raise StoreUnavailable("throttled")
        return []

    async def delete(self, *_: str) -> None:
        return None


class FakeChanges:
    """Answers with how many were written so far."""

    def __init__(self) -> None:
        self.written = 1

    async def now(self) -> str:
        return str(self.written)


async def test_a_listing_that_fails_beside_a_call_without_an_answer_stops_no_later_one() -> (
    None
):
    items: Any = FakeItems()
    changes: Any = FakeChanges()
    leases = CosmosLeases(items, NAMES, changes=changes)
    bounded = leases.bounded(CallLimits(timeout=10))
    await bounded.create(WHOLE)
    with pytest.raises(StoreUnavailable, match="throttled"):
        await bounded.list_fleet()
    unanswered, items.well = items.well, asyncio.Event()
    items.well.set()
    assert await bounded.list() == []
    assert not unanswered.is_set()
    assert items.created == ["p.lock", "p..0", "p.info"]


async def test_what_is_written_while_all_are_listed_is_shown_with_the_next_changes() -> None:
    changes: Any = FakeChanges()

    class WrittenMeanwhile(FakeItems):
        async def query(self, _: str, *, begin: str) -> list[Document]:
            await asyncio.sleep(1)
            changes.written += begin == NAMES.leases
            return []

    items: Any = WrittenMeanwhile()
    listed = await CosmosLeases(items, NAMES, changes=changes).list_fleet()
    assert (changes.written, listed.token) == (2, "1")


@pytest.mark.parametrize("taken_meanwhile", [True, False])
async def test_a_write_that_is_sent_twice_counts_only_if_no_other_processor_wrote_since(
    *, taken_meanwhile: bool
) -> None:
    stored: dict[str, Document] = {}
    taken = {"Owner": "net", "timestamp": "2026-01-01T00:00:00.0000000Z"}

    class AnswersTheSecond(FakeItems):
        async def create(self, document: Document) -> Document:
            stored[document["id"]] = await super().create(document)
            return stored[document["id"]]

        async def read(self, name: str) -> Document | None:
            return stored.get(name)

        async def patch_whole(self, name: str, operations: Operations, _: str) -> None:
            stored[name] = patched(stored[name], [dict(x) for x in operations])
            stored[name] |= taken if taken_meanwhile else {}

    items: Any = AnswersTheSecond()
    items.well.set()
    leases = CosmosLeases(items, NAMES)
    created = await leases.create(WHOLE)
    wanted = created.taken_by(HostName("a"), Incarnation("a1"))
    if not taken_meanwhile:
        assert (await leases.acquire(wanted)).owner == "a"
        return
    with pytest.raises(LeaseConflict, match="now owned by 'net' in epoch 2"):
        await leases.acquire(wanted)


async def test_who_may_not_read_the_change_feed_asks_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Feed(MemoryFeed):
        refuses = True
        asked = 0

        async def start(self, found: FeedRange, at: StartAt) -> Position:
            self.asked += 1
            if self.refuses:
                raise FeedRefused("no right")
            return await super().start(found, at)

    feed = Feed(1)
    monkeypatch.setattr("changefeed.leases.cosmos.changes.Requests", lambda _: None)
    monkeypatch.setattr("changefeed.leases.cosmos.changes.CosmosFeed", lambda *_, **__: feed)
    container: Any = None
    changes = LeaseChanges(container)
    assert [await changes.now() for _ in range(1_000)] == [None] * 1_000
    assert feed.asked == 9
    feed.refuses = False
    found = [await changes.now() for _ in range(512)]
    assert found[-1] is not None  # the right was given meanwhile
    feed.refuses = True
    assert [await changes.now() for _ in range(2)] == [None] * 2
    feed.refuses = False
    assert await changes.now() is not None  # one refusal in passing costs one listing
