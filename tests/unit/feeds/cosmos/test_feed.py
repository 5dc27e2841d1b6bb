"""What a feed makes of answers that a server gives seldom: of stale replicas, of another
container.
"""

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from changefeed.feeds.cosmos.answers import Answer
from changefeed.feeds.cosmos.client import Container
from changefeed.feeds.cosmos.failover import Failover
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.requests import Requests
from changefeed.feeds.cosmos.topology import Topology
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, Position, RangeId

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

OURS = "our-container"
ZERO = RangeId("0")


class Saying(Requests):
    """Asks no server: ``answer`` is what it says to each question for changes."""

    answer: Answer

    def __init__(self) -> None:
        failover = Failover(cast("ContainerProxy", None))
        properties = {"_rid": OURS, "partitionKey": {"paths": ["/pk"], "version": 2}}
        super().__init__(Container(where="d/c", failover=failover, properties=properties))
        self.topology = Topology.of([FeedRange(id=ZERO, low="", high="FF")])

    async def changes(self, *_: object, **query: Any) -> Answer:
        del query
        return self.answer


def no_changes(*, newest: int) -> Answer:
    headers = {"etag": f'"{newest}"', "x-ms-session-token": f"0:{newest}"}
    return Answer(status=304, headers=headers)


def one_change(lsn: int, *, container: str = OURS) -> Answer:
    item = {"id": "a", "pk": "p", "_lsn": lsn, "_ts": 1}
    headers = {"etag": f'"{lsn}"', "x-ms-session-token": f"0:{lsn}"}
    body = msgspec.json.encode({"_rid": container, "Documents": [item]})
    return Answer(status=200, headers=headers, body=body)


def feed_over(requests: Requests) -> CosmosFeed:
    return CosmosFeed(requests, mode="latest-version")


async def test_a_replica_that_is_behind_again_after_changes_came_is_waited_for_anew() -> None:
    said = Saying()
    feed = feed_over(said)
    said.answer = no_changes(newest=5)
    page = await feed.read(FeedRange(id=ZERO), Position('"10"'), 5)
    assert page.position == '"10"'
    said.answer = one_change(12)
    page = await feed.read(FeedRange(id=ZERO), page.position, 5)
    assert page.position == '"12"'
    await asyncio.sleep(3600)
    said.answer = no_changes(newest=11)
    page = await feed.read(FeedRange(id=ZERO), page.position, 5)
    assert page.position == '"12"'


async def test_the_changes_of_a_container_of_the_same_name_are_refused() -> None:
    said = Saying()
    said.answer = one_change(12, container="another-container")
    with pytest.raises(FeedRefused, match="d/c was deleted and recreated"):
        await feed_over(said).read(FeedRange(id=ZERO), Position('"10"'), 5)
